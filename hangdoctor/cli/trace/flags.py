"""What to trace, as flags: shared by `trace start` and `run --trace`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ...errors import UsageError
from ...probe.calls.request import MAX_NAME

_Command = Callable[..., Any]


def _names(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(
        dict.fromkeys(name.strip() for text in value for name in text.split(",") if name.strip())
    )
    for name in names:
        known = len(name) <= MAX_NAME and all(part.isidentifier() for part in name.split("."))
        if name != "*" and not known:
            raise UsageError(
                f"'{name}' is not an import name",
                "Write it as in an import statement: megatron.model,deepspeed",
            )
    return names


def choice_flags(prefix: str = "") -> Callable[[_Command], _Command]:
    """--follow, --ignore, --from-iteration: shared with `run`."""

    def add(command: _Command) -> _Command:
        flags = [
            click.option(
                "--follow",
                multiple=True,
                callback=_names,
                metavar="NAMES",
                help=f"{prefix}Packages and modules to trace, by import name, comma-separated (default: the script's own package and what lies beside it; * is all).",
            ),
            click.option(
                "--ignore",
                multiple=True,
                callback=_names,
                metavar="NAMES",
                help=f"{prefix}Packages and modules not to trace; if both match, the longer name wins.",
            ),
            click.option(
                "--from-iteration",
                type=click.IntRange(0),
                metavar="N",
                help=f"{prefix}Start tracing at iteration N, as reported by hangdoctor.probe.iteration, else counted in optimizer steps (default: now).",
            ),
        ]
        for flag in reversed(flags):
            command = flag(command)
        return command

    return add
