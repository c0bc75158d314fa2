"""What to trace, as flags: shared by `trace start` and `run --trace`."""

from __future__ import annotations

import click

from ...errors import UsageError
from ...probe.calls.request import MAX_NAME
from ..shared_flags import Flag, together


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


def choice_flags(prefix: str = "") -> Flag:
    """--follow, --ignore, --from-iteration: shared with `run`."""

    return together(
        [
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
    )
