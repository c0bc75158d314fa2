"""Flags and output shared by the verbs that diagnose."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from ..errors import BundleError
from ..model.diagnosis import Diagnosis
from ..storage import bundle
from ..time_limit import OutOfTime, within
from . import pipes

_WRITE_S = 20.0
EXIT_CODES = {"healthy": 0, "hang": 10, "slow": 11, "unknown": 12}


def result_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """--json, --quiet, --no-color and --exit-code."""
    flags = [
        click.option(
            "--json",
            "json_file",
            metavar="FILE|-",
            help="Write the diagnosis as JSON to FILE; - writes it to standard output instead of the report.",
        ),
        click.option(
            "--quiet",
            "-q",
            is_flag=True,
            help="Print only the verdict's sentence and no progress.",
        ),
        click.option(
            "--no-color",
            is_flag=True,
            help="Print without colours (also with NO_COLOR, or if the output is not a terminal).",
        ),
        click.option(
            "--exit-code",
            is_flag=True,
            help="Exit with 0 healthy, 10 hang, 11 slow, 12 could not tell (default: 0 for all).",
        ),
    ]
    for flag in reversed(flags):
        command = flag(command)
    return command


def deliver(
    diagnosis: Diagnosis, json_file: str | None, quiet: bool, no_color: bool, saved: str = ""
) -> None:
    """Print the result as a report or as JSON, and write JSON to a file as well."""
    with pipes.shown():  # `| head` has closed the pipe; the exit code still shows the verdict
        if json_file == "-":
            sys.stdout.buffer.write(bundle.encode_diagnosis(diagnosis))
        else:
            _show(diagnosis, quiet, no_color, saved)
    if (
        json_file and json_file != "-"
    ):  # after the report: a file that cannot be written must not lose the verdict
        try:
            within(
                _WRITE_S, lambda: Path(json_file).write_bytes(bundle.encode_diagnosis(diagnosis))
            )
        except OutOfTime:
            raise BundleError(
                f"the diagnosis was not written: {json_file} did not answer within {_WRITE_S:.0f} s"
            ) from None
        except OSError as error:
            raise BundleError(
                f"the diagnosis cannot be written to {json_file}: {error.strerror}"
            ) from error


def _show(diagnosis: Diagnosis, quiet: bool, no_color: bool, saved: str) -> None:
    if quiet:
        pipes.say(diagnosis.summary)
        return
    from rich.console import Console

    from ..report.terminal import render

    plain = no_color or bool(os.environ.get("NO_COLOR"))
    width = None if sys.stdout.isatty() else 160
    render(diagnosis, Console(color_system=None if plain else "auto", width=width), saved)


def exit_with(diagnosis: Diagnosis, wanted: bool) -> None:
    if wanted:
        raise click.exceptions.Exit(EXIT_CODES[diagnosis.status])


def write_file(target: str, pieces: Iterable[bytes]) -> int:
    """Write all pieces to standard output (-), or to a file, completely or not at all; returns
    the bytes.

    A special file (/dev/null, a FIFO) is written to, never replaced; of a link, its target is
    replaced.

    Raises:
        BundleError: the file cannot be written.
    """
    if target == "-":
        count = 0
        with pipes.shown():
            for piece in pieces:
                count += sys.stdout.buffer.write(piece)
        return count
    path = Path(os.path.realpath(target))
    special = path.exists() and not path.is_file()
    staging = path if special else path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with staging.open("wb") as file:
            count = sum(file.write(piece) for piece in pieces)
        if not special:
            staging.replace(path)
    except OSError as error:
        raise BundleError(
            f"{target} cannot be written: {error.strerror}", "Choose another path."
        ) from error
    finally:
        if not special:
            staging.unlink(missing_ok=True)
    return count


def progress_to_stderr(quiet: bool) -> Callable[[str], None]:
    def say(text: str) -> None:
        if not quiet:
            pipes.say(f"hangdoctor: {text}", err=True)

    return say
