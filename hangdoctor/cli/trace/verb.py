"""`hangdoctor trace`: the group of sub-verbs; each is imported when it is asked for."""

from __future__ import annotations

import importlib

import click

# sub-verb -> (module beside this one, its attribute, its line in --help).
COMMANDS: dict[str, tuple[str, str, str]] = {
    "start": ("control", "start", "Trace Python calls in a running job that carries the probe."),
    "stop": ("control", "stop", "Stop tracing; what was recorded stays readable."),
    "status": (
        "control",
        "status",
        "Who traces, what, how much, and how far back the rings reach.",
    ),
    "tail": (
        "tail",
        "tail",
        "The last calls of one rank, live, also while it hangs or after it died.",
    ),
    "export": ("timeline", "export", "One timeline of all ranks, for Perfetto's viewer."),
    "stragglers": (
        "timeline",
        "stragglers",
        "Who arrived last at each step, and how long the others waited.",
    ),
}


class _Commands(click.Group):
    """A group whose commands are imported when they are asked for."""

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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help) for name, (_, _, help) in COMMANDS.items()])


@click.group("trace", cls=_Commands)
def command() -> None:
    """Python calls and one timeline: switched on and off in running ranks, read while they hang or after they died.

    \b
    hangdoctor trace start --follow megatron,deepspeed,train --ignore torch.nn
    hangdoctor trace tail --rank 3
    hangdoctor trace stop
    """
