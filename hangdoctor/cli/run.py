"""``hangdoctor run -- CMD...``: start a training with the probe in every rank."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import MutableMapping
from pathlib import Path

import click

from ..errors import HangdoctorError, UsageError
from ..probe import folder as folders
from ..probe import retention
from ..probe.calls import request as requests
from .trace_flags import choice_flags

_ROOM = 64_000_000  # bytes: boxes of sixteen ranks
_TIDY_S = 2.0
STARTUP = Path(folders.__file__).parent / "startup"


@click.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--trace", "trace", is_flag=True, help="Trace Python calls from the start, in every rank (hangdoctor trace).")
@choice_flags("With --trace: ")
@click.argument("cmd", nargs=-1, type=click.UNPROCESSED, metavar="-- CMD...")
def command(
    cmd: tuple[str, ...], trace: bool, follow: tuple[str, ...], ignore: tuple[str, ...], from_iteration: int | None
) -> None:
    """Start a training command with the probe inside it, without a change to its code.

    CMD is whatever starts the job: torchrun, python, srun, mpiexec, deepspeed. Every Python below it loads the probe at
    its start (through PYTHONPATH) and each rank keeps a black box of its operations in HANGDOCTOR_DIR, by default a new
    folder under /dev/shm, which `hangdoctor dump` reads. The exit code is CMD's own. HANGDOCTOR_DISABLE=1 starts CMD
    without the probe.
    """
    if not cmd:
        raise UsageError("no command to run", "For example: hangdoctor run -- torchrun --nproc_per_node 8 train.py")
    program = shutil.which(cmd[0])
    if program is None:
        raise UsageError(f"'{cmd[0]}' is no command on PATH", _advice(cmd[0]))
    if not trace and (follow or ignore or from_iteration is not None):
        raise UsageError("--follow, --ignore and --from-iteration say what to trace", "Add --trace.")
    environ = dict(os.environ)
    if environ.get("HANGDOCTOR_DISABLE", "") in ("", "0"):
        prepare(environ)
        if trace:
            asked = requests.Request(time.time_ns(), True, follow, ignore, from_iteration)
            environ[requests.VARIABLE] = requests.encode(asked)
    try:
        os.execvpe(program, list(cmd), environ)
    except OSError as error:
        raise HangdoctorError(f"{program} cannot be started: {error.strerror}", "Is it executable here?") from error


def prepare(environ: MutableMapping[str, str]) -> None:
    """Set PYTHONPATH and HANGDOCTOR_DIR for the job, and make the folder.

    Raises:
        HangdoctorError: the folder cannot be made, or is somebody else's.
    """
    told = environ.get("HANGDOCTOR_DIR")  # absolute, because ranks and readers have other current folders
    where = Path(told).absolute() if told else folders.root() / _run_name(environ)
    try:
        folders.prepare(where)
    except OSError as error:
        raise HangdoctorError(
            f"run-time folder {where}: {error.strerror or error}", "Set HANGDOCTOR_DIR to a folder of your own."
        ) from error
    retention.tidy(folders.root(), time.time_ns(), _TIDY_S)
    _warn_of_room(where)
    if not told:
        folders.remove_if_empty(where)  # the first rank with a box makes it again; a command without ranks leaves nothing
    environ["HANGDOCTOR_DIR"] = str(where)
    others = [p for p in environ.get("PYTHONPATH", "").split(os.pathsep) if p and p != str(STARTUP)]
    environ["PYTHONPATH"] = os.pathsep.join([str(STARTUP), *others])
    # Open MPI alone does not pass the environment on to other nodes unless told so.
    forwarded = environ.get("OMPI_MCA_mca_base_env_list", "")
    environ["OMPI_MCA_mca_base_env_list"] = ";".join(
        filter(None, (forwarded, "PYTHONPATH", "HANGDOCTOR_DIR", requests.VARIABLE))
    )


def _warn_of_room(where: Path) -> None:
    """A rank without room for its box trains on without one and says nothing: this is the place to say it."""
    space = os.statvfs(where)
    free = space.f_bavail * space.f_frsize
    if free < _ROOM:
        click.echo(
            f"hangdoctor: {free / 1e6:.0f} MB are free in {where}, and each rank's black box takes 4 MB: ranks without room go without one "
            "(HANGDOCTOR_DIR names another place)",
            err=True,
        )


def _run_name(environ: MutableMapping[str, str]) -> str:
    slurm, pbs = environ.get("SLURM_JOB_ID"), environ.get("PBS_JOBID")
    job = f"slurm-{slurm}" if slurm else f"pbs-{pbs}" if pbs else "run"
    return f"{job}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


def _advice(program: str) -> str:
    if program.endswith(".py"):
        return f"Put the interpreter in front: hangdoctor run -- python {program}"
    if program.startswith("-"):
        return "Options of the training go behind its command: hangdoctor run -- CMD --option"
    return "Is its environment activated, and the name written right?"
