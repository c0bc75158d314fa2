"""``hangdoctor run -- CMD...``: start a training with the probe in every rank."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import click

from ..errors import HangdoctorError, UsageError
from ..probe.calls import request as requests
from . import run_command
from .run_ends import EndsWatch
from .run_environment import (
    STARTUP,
    note_launch,
    pass_on_by_open_mpi,
    prepare,
    warn,
    without_ours,
)
from .run_verdict import say_verdict
from .trace.flags import choice_flags

__all__ = ["STARTUP", "command", "prepare"]


@click.command(
    "run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.option(
    "--trace",
    "trace",
    is_flag=True,
    help="Trace Python calls in every rank from the start (see hangdoctor trace).",
)
@choice_flags("With --trace: ")
@click.option(
    "--quiet",
    is_flag=True,
    help="Print nothing about how a job that failed has ended.",
)
@click.argument("cmd", nargs=-1, type=click.UNPROCESSED, metavar="-- CMD...")
def command(
    cmd: tuple[str, ...],
    trace: bool,
    follow: tuple[str, ...],
    ignore: tuple[str, ...],
    from_iteration: int | None,
    quiet: bool,
) -> None:
    """Start a training command with the probe in every rank; needs no code change.

    CMD is the command that starts the job: torchrun, python, srun, mpiexec, deepspeed. Every
    Python process that it starts loads the probe (through PYTHONPATH), and each rank records
    its operations in a black box in HANGDOCTOR_DIR (default: a new folder under /dev/shm),
    which `hangdoctor dump` reads. Where the job has no profiler plugin for NCCL, NCCL_PROFILER_PLUGIN
    names ours (HANGDOCTOR_NCCL_EVENTS=off: none; =device: also when GPUs start an operation).
    Nothing else about CMD changes, and it is always started: if black boxes cannot be written,
    a warning says so. The exit code is CMD's own. When ranks fail,
    one line on standard error says which failed first, how, and where the black boxes are
    (--quiet: none). HANGDOCTOR_DISABLE=1 starts CMD without the probe.
    """
    if not cmd:
        raise UsageError(
            "no command was given",
            "For example: hangdoctor run -- torchrun --nproc_per_node 8 train.py",
        )
    program = shutil.which(cmd[0])
    if program is None:
        raise UsageError(f"command not found: '{cmd[0]}'", _advice(cmd[0]))
    if not trace and (follow or ignore or from_iteration is not None):
        raise UsageError("--follow, --ignore and --from-iteration need --trace", "Add --trace.")
    environ = without_ours(os.environ)
    asked = requests.Request(time.time_ns(), True, follow, ignore, from_iteration=from_iteration)
    if environ.get("HANGDOCTOR_DISABLE", "") in ("", "0"):
        environ = _prepared(environ, cmd, asked if trace else None)
    try:
        code = _run(program, cmd, environ, quiet)
    except OSError as error:
        raise HangdoctorError(
            f"{program} cannot be started: {error.strerror}",
            "Is it an executable file for this machine?",
        ) from error
    run_command.end_as(code)


def _prepared(
    environ: dict[str, str], words: Sequence[str], asked: requests.Request | None
) -> dict[str, str]:
    """The environment with ours; as it was where that fails, whatever it is: CMD has to start."""
    ours = dict(environ)
    try:
        prepare(ours)
        if asked is not None:
            ours[requests.VARIABLE] = requests.encode(asked)
        pass_on_by_open_mpi(ours, words)
        note_launch(ours, words)
    except Exception as error:
        warn(f"the command runs without the probe: {error}")
        return environ
    return ours


def _run(program: str, words: Sequence[str], environ: dict[str, str], quiet: bool) -> int:
    """Run CMD with the probe, or without where its environment has no room for ours; its exit code.

    Raises:
        OSError: it cannot be started.
    """
    try:
        if not _is_probed(environ):
            run_command.become(program, words, environ)
        return _watched(program, words, environ, quiet)
    except OSError as error:
        own = without_ours(os.environ)
        if error.errno != errno.E2BIG or own == environ:
            raise
        warn("the environment has no room for our variables: the command runs without the probe")
        run_command.become(program, words, own)
        raise


def _is_probed(environ: dict[str, str]) -> bool:
    """Whether CMD's ranks will have boxes, and a place for them."""
    first = environ.get("PYTHONPATH", "").split(os.pathsep)[0]
    return first == str(STARTUP) and bool(environ.get("HANGDOCTOR_DIR"))


def _watched(program: str, words: Sequence[str], environ: dict[str, str], quiet: bool) -> int:
    """Run CMD, note how its ranks end, and print a line on a job that failed; CMD's exit code.

    Raises:
        OSError: it cannot be started.
    """
    watches: list[EndsWatch] = []
    folder = Path(environ["HANGDOCTOR_DIR"])

    def started(pid: int) -> None:
        watches.append(EndsWatch(folder, pid))
        watches[0].start()

    code = run_command.run(program, words, environ, started)
    try:
        failed = watches[0].finish(code)
        run_command.end_on_signals(code)
        if failed and not quiet:
            say_verdict(folder, environ)
    except Exception as error:  # the job has ended, and its exit code is what counts
        if not quiet:
            warn(f"how its ranks ended cannot be shown: {error}")
    return code


def _advice(program: str) -> str:
    if program.endswith(".py"):
        return f"Write the interpreter before it: hangdoctor run -- python {program}"
    if program.startswith("-"):
        return "Options of the training go after its command: hangdoctor run -- CMD --option"
    return "Is its environment activated, and is the name spelled correctly?"
