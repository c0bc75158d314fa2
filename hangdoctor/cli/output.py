"""Flags and output shared by the verbs that diagnose."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import click
from msgspec import Struct

from ..errors import BundleError
from ..model.diagnosis import Diagnosis
from ..storage import bundle
from ..time_limit import OutOfTime, within
from . import pipes
from .console import console
from .shared_flags import Command, together

_WRITE_S = 20.0
_ROWS = 40  # of a report that goes to a file or a pipe
_ROWS_AT_LEAST = 23
EXIT_CODES = {"healthy": 0, "hang": 10, "slow": 11, "unknown": 12, "failed": 13}


def result_flags(command: Command) -> Command:
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
            help="Exit with 0 healthy, 10 hang, 11 slow, 12 could not tell, 13 failed (default: 0 for all).",
        ),
    ]
    return together(flags)(command)


def full_flag(command: Command) -> Command:
    """--full."""
    return click.option(
        "--full", is_flag=True, help="Print the whole report (default: what fits on one screen)."
    )(command)


def program_name() -> str:
    """How the user calls this program: by its path where the shell would not find it."""
    program = Path(sys.argv[0])
    if program.name == "hangdoctor" and shutil.which("hangdoctor") is None:
        return os.path.relpath(program)
    return "hangdoctor"


class Shown(Struct):
    """How much of a report is printed. `saved`: where its bundle is; `more`: lines before the verdict."""

    saved: str = ""
    full: bool = False
    more: Sequence[str] = ()


def deliver(
    diagnosis: Diagnosis, json_file: str | None, quiet: bool, no_color: bool, shown: Shown
) -> None:
    """Print the result as a report or as JSON, and write JSON to a file as well."""
    with pipes.shown():  # `| head` has closed the pipe; the exit code still shows the verdict
        if json_file == "-":
            sys.stdout.buffer.write(bundle.encode_diagnosis(diagnosis))
        else:
            _show(diagnosis, quiet, no_color, shown)
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


def _show(diagnosis: Diagnosis, quiet: bool, no_color: bool, shown: Shown) -> None:
    if quiet:
        pipes.say(diagnosis.summary)
        return
    from ..report.terminal_report import render

    out = console(no_color, width=160)
    rows = max(_ROWS_AT_LEAST, out.height - 1) if sys.stdout.isatty() else _ROWS
    page = f"{program_name()} report {shlex.quote(shown.saved)}"
    bundle = f"{shown.saved} (a page to send: {page})" if shown.saved else ""
    render(diagnosis, out, bundle, rows=0 if shown.full else rows, more=shown.more)


def exit_with(diagnosis: Diagnosis, wanted: bool) -> None:
    """End the program with the exit code of the verdict, where `--exit-code` was given."""
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
    """What prints a line of progress to standard error; nothing with `quiet`."""

    def say(text: str) -> None:
        if not quiet:
            pipes.say(f"hangdoctor: {text}", err=True)

    return say
