"""`hangdoctor trace`: the group of sub-verbs; each is imported when it is used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# sub-verb -> (module beside this one, its attribute, its line in --help).
COMMANDS: dict[str, tuple[str, str, str]] = {
    "start": ("control", "start", "Trace Python calls in a running job that has the probe."),
    "stop": ("control", "stop", "Stop tracing; recorded calls stay readable."),
    "status": (
        "control",
        "status",
        "Show which ranks trace, what they follow, and how far back their calls reach.",
    ),
    "tail": (
        "tail",
        "tail",
        "Follow the calls of one rank, also while it hangs or after it died.",
    ),
    "export": (
        "timeline",
        "export",
        "Write one timeline of all ranks, for https://ui.perfetto.dev.",
    ),
    "stragglers": (
        "timeline",
        "stragglers",
        "Show which rank arrived last at each step, and how long the others waited.",
    ),
}


class _Commands(click.Group):
    """A group that imports a command when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(
            importlib.import_module(f".{module}", __package__), attribute
        )
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        from ..complete import described

        return described(((name, help) for name, (_, _, help) in COMMANDS.items()), incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help) for name, (_, _, help) in COMMANDS.items()])


@click.group("trace", cls=_Commands)
def command() -> None:
    """Trace Python calls in running ranks, read them, and export one timeline.

    \b
    hangdoctor trace start --follow megatron,deepspeed,train --ignore torch.nn
    hangdoctor trace tail --rank 3
    hangdoctor trace stop
    """
