"""What `hangdoctor run` adds to the environment of a command: its own two variables, and NCCL's plugin
where the job has none.

All that the user has set is passed on unchanged. Nothing here stops the command from starting: what
fails is printed on standard error, and the job runs without it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path

from ..probe import folder as folders
from ..probe import retention
from ..probe.calls import request as requests
from ..probe.nccl import plugin as nccl_plugin
from . import pipes

STARTUP = Path(folders.__file__).parent / "startup"
_ROOM = 64_000_000  # bytes: boxes of sixteen ranks
_TIDY_S = 2.0
_OPEN_MPI = ("mpirun", "mpiexec", "orterun")  # also as mpirun.openmpi
_LIST = "mca_base_env_list"
_OWN = ("PYTHONPATH", "HANGDOCTOR_DIR", requests.VARIABLE)


def without_ours(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment as this process got it: Python itself sets LC_CTYPE in the C locale (PEP
    538).
    """
    kept = dict(environ)
    try:
        came = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return kept
    if len(came) > 1:
        kept.pop("LC_CTYPE", None)
        kept.update(
            ("LC_CTYPE", os.fsdecode(entry[9:])) for entry in came if entry.startswith(b"LC_CTYPE=")
        )
    return kept


def prepare(environ: MutableMapping[str, str]) -> None:
    """Set PYTHONPATH and HANGDOCTOR_DIR for the job, and make the folder; what fails is printed and
    left out.
    """
    before = environ.get("PYTHONPATH", "")
    if os.pathsep in str(STARTUP):
        warn(
            f"{STARTUP} has a colon in its path, which PYTHONPATH does not allow: the command runs without the probe"
        )
        return
    if before.split(os.pathsep)[0] != str(STARTUP):
        # All entries after ours stay, also empty ones: they mean the current folder.
        environ["PYTHONPATH"] = f"{STARTUP}{os.pathsep}{before}" if before else str(STARTUP)
    told = environ.get("HANGDOCTOR_DIR", "")
    name = _run_name(environ)
    try:
        wanted = Path(told).absolute() if told else folders.root() / name
        where, why = folders.take(wanted, name)
    except OSError as error:
        warn(
            f"no folder for black boxes can be made on this machine ({error}): its ranks run without one"
        )
        return
    if why:
        warn(f"{why}: black boxes go to {where}")
    for base in folders.places():
        retention.tidy(base, time.time_ns(), _TIDY_S)
    _warn_of_room(where)
    folders.remove_if_empty(
        where
    )  # the first rank with a box makes it again; a command without ranks leaves nothing behind
    if why or not told:
        environ["HANGDOCTOR_DIR"] = str(where)
    elif not told.startswith("/"):  # ranks and readers have a different current folder
        environ["HANGDOCTOR_DIR"] = str(wanted)
    plugin = nccl_plugin.plugin_for(environ)
    if plugin is not None:
        environ[nccl_plugin.VARIABLE] = str(plugin)


def note_launch(environ: Mapping[str, str], words: Sequence[str]) -> None:
    """Write into the job's folder how many nodes and ranks the command starts, if it says so."""
    from ..readers import launch_words  # a rank that is started by itself does without

    if not environ.get("HANGDOCTOR_DIR"):
        return
    launch = launch_words.launch_of(words, environ)
    if launch is None or (not launch.launcher and "RANK" in environ):
        return  # a rank alone: its black box has the world size
    from ..readers import launch_file

    wanted = Path(environ["HANGDOCTOR_DIR"])
    with contextlib.suppress(OSError):  # the command line of the launcher says the same
        launch_file.write(folders.prepare(wanted), launch)


def pass_on_by_open_mpi(environ: MutableMapping[str, str], words: Sequence[str]) -> None:
    """Pass our variables to Open MPI, the only launcher that does not forward the environment
    to other nodes.

    It aborts a job that names variables both here and with -x, and warns about each that is not
    set.
    """
    if os.path.basename(words[0]).partition(".")[0] not in _OPEN_MPI:  # noqa: PTH119
        return
    if any(word in ("-x", "--x") or word.endswith(_LIST) for word in words[1:]):
        warn("if Open MPI starts ranks on other nodes, add: -x PYTHONPATH -x HANGDOCTOR_DIR")
        return
    between = environ.get(f"OMPI_MCA_{_LIST}_delimiter") or ";"
    own = [name for name in _OWN if name in environ]
    if environ.get(nccl_plugin.VARIABLE, "") == str(nccl_plugin.built()):
        own.append(nccl_plugin.VARIABLE)
    named = [environ.get(f"OMPI_MCA_{_LIST}", ""), *own]
    environ[f"OMPI_MCA_{_LIST}"] = between.join(filter(None, named))


def warn(text: str) -> None:
    """Print a line on standard error, if there is one."""
    with contextlib.suppress(
        OSError, ValueError
    ):  # standard error is closed: still no reason to stop
        pipes.say(f"hangdoctor: {text}", err=True)


def _warn_of_room(where: Path) -> None:
    """A rank without space for its box trains without one and prints nothing, so this prints it."""
    try:
        space = os.statvfs(where)
    except OSError:
        return
    free = space.f_bavail * space.f_frsize
    if free < _ROOM:
        warn(
            f"only {free / 1e6:.0f} MB are free in {where}, and each rank's black box takes up to 4 MB: ranks without space run without one. Set HANGDOCTOR_DIR to use another folder"
        )


def _run_name(environ: Mapping[str, str]) -> str:
    """A new name for the folder of this run."""
    job = "run"
    if environ.get("SLURM_JOB_ID"):
        job = f"slurm-{environ['SLURM_JOB_ID']}"
    elif environ.get("PBS_JOBID"):
        job = f"pbs-{environ['PBS_JOBID']}"
    job = "".join(c if c.isalnum() or c in "._-" else "_" for c in job)[:100]
    return f"{job}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
