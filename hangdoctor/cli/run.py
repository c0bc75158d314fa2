"""``hangdoctor run -- CMD...``: start a training with the probe in every rank."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import time
from collections.abc import Sequence

import click

from ..errors import HangdoctorError, UsageError
from ..probe.calls import request as requests
from .run_environment import STARTUP, pass_on_by_open_mpi, prepare, without_ours
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
@click.argument("cmd", nargs=-1, type=click.UNPROCESSED, metavar="-- CMD...")
def command(
    cmd: tuple[str, ...],
    trace: bool,
    follow: tuple[str, ...],
    ignore: tuple[str, ...],
    from_iteration: int | None,
) -> None:
    """Start a training command with the probe in every rank; needs no code change.

    CMD is the command that starts the job: torchrun, python, srun, mpiexec, deepspeed. Every
    Python process that it starts loads the probe (through PYTHONPATH), and each rank records
    its operations in a black box in HANGDOCTOR_DIR (default: a new folder under /dev/shm),
    which `hangdoctor dump` reads. Nothing else about CMD changes, and it is always started: if
    black boxes cannot be written, a warning says so. The exit code is CMD's own.
    HANGDOCTOR_DISABLE=1 starts CMD without
    the probe.
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
    if environ.get("HANGDOCTOR_DISABLE", "") in ("", "0"):
        prepare(environ)
        if trace:
            asked = requests.Request(
                time.time_ns(), True, follow, ignore, from_iteration=from_iteration
            )
            environ[requests.VARIABLE] = requests.encode(asked)
        pass_on_by_open_mpi(environ, cmd)
    try:
        _become(program, cmd, environ)
    except OSError as error:
        raise HangdoctorError(
            f"{program} cannot be started: {error.strerror}",
            "Is it an executable file for this machine?",
        ) from error


def _become(program: str, words: Sequence[str], environ: dict[str, str]) -> None:
    """Replace this process by CMD, as the shell would have started it.

    Raises:
        OSError: it cannot be started.
    """
    # Python ignores these two, and ignored signals stay ignored in the next program.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(program, list(words), environ)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        os.execve(
            "/bin/sh", ["/bin/sh", program, *words[1:]], environ
        )  # a script without a first line, as execvp(3)


def _advice(program: str) -> str:
    if program.endswith(".py"):
        return f"Write the interpreter before it: hangdoctor run -- python {program}"
    if program.startswith("-"):
        return "Options of the training go after its command: hangdoctor run -- CMD --option"
    return "Is its environment activated, and is the name spelled correctly?"
