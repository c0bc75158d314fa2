"""How flags are made that many verbs have: those in seconds, and several that belong together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

Command = Callable[..., Any]
Flag = Callable[[Command], Command]


def together(flags: Sequence[Flag]) -> Flag:
    """One decorator that adds all these flags; `--help` lists them in this order."""

    def add(command: Command) -> Command:
        for flag in reversed(flags):
            command = flag(command)
        return command

    return add


def seconds(
    *names: str,
    default: float,
    help: str,
    least: float = 0,
    most: float | None = None,
    show_default: bool = True,
) -> Flag:
    """A flag that takes seconds between `least` and `most`."""
    return click.option(
        *names,
        default=default,
        show_default=show_default,
        type=click.FloatRange(least, most),
        metavar="S",
        help=help,
    )
