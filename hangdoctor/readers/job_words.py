"""How a job on this host is listed for a person who has to choose one of several."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from ..text.durations import duration
from ..text.job_names import short_job
from ..text.plain import readable, visible
from ..text.plural import count
from ..text.scripts import script_in
from . import lost_ranks
from .discover import Found, Job

_NAMED = 6  # jobs in one line
_LONGEST_NAME = 40  # characters of a script, from a process that may be called anything
_LONGEST_OWNER = 32
_LONGEST_KEY = 80
_STARTERS = 3  # processes above a spawned rank that may show its script


def in_brief(job: Job, *, with_user: bool = False, now: float = 0.0) -> str:
    """``a:10 (of me, 4 ranks of train.py, pid 812, 2 min)``; the owner with `with_user` alone."""
    details = [f"of {visible(job.user)[:_LONGEST_OWNER]}"] if with_user else []
    details.append(f"{_number(job)} of {script_of(job.ranks[0])}")
    details.append(f"pid {job.ranks[0].pid}")
    oldest = min(found.started for found in job.ranks)
    details.append(duration(max(0.0, (now or time.time()) - oldest)))
    return f"{visible(short_job(job.key))[:_LONGEST_KEY]} ({', '.join(details)})"


def listed(jobs: Sequence[Job], *, with_user: bool | None = None) -> str:
    """Some jobs in brief, in one line; owners where the jobs have several."""
    several = len({job.user for job in jobs}) > 1 if with_user is None else with_user
    named = ", ".join(in_brief(job, with_user=several) for job in jobs[:_NAMED])
    more = f" and {len(jobs) - _NAMED} more" if len(jobs) > _NAMED else ""
    return f"{named}{more}"


def here_now(jobs: Sequence[Job]) -> str:
    """The jobs on this host, for a person who gave the name of another one."""
    if not jobs:
        return "no other job is on this host"
    return f"jobs on this host: {listed(jobs)}"


def script_of(found: Found) -> str:
    """The script or the module that a rank runs: ``train.py``, ``pkg.train``; the program's name
    where the command line shows neither.
    """
    return _script(found.argv, found.ppid)


def script_of_process(pid: int) -> str:
    """The same of a process; "" where its command line may not be read."""
    argv, above = _starter(pid)
    return _script(argv, above) if argv else ""


def _script(own: Sequence[str], pid: int) -> str:
    """By its command line; of a process of multiprocessing, by that of the one that started it,
    `pid`.
    """
    argv = own
    for _ in range(_STARTERS):
        if not _is_of_multiprocessing(argv) or pid <= 1:
            break
        argv, pid = _starter(pid)
    return visible(script_in(argv) or _program(argv or own))[:_LONGEST_NAME]


def _program(argv: Sequence[str]) -> str:
    """``python -c``, or what the process calls itself."""
    name = Path(argv[0]).name if argv else "python"
    return f"{name} -c" if "-c" in argv else name


def _number(job: Job) -> str:
    """How many ranks it has here, and of how many where some have ended."""
    here, gone = len(job.ranks), len(lost_ranks.absent(job))
    return f"{here} of {count(here + gone, 'rank')}" if gone else count(here, "rank")


def _is_of_multiprocessing(argv: Sequence[str]) -> bool:
    """Whether it runs code of multiprocessing, which says nothing of the job's own script."""
    code = argv[argv.index("-c") + 1 :] if "-c" in argv else []
    return bool(code) and code[0].startswith("from multiprocessing")


def _starter(pid: int) -> tuple[list[str], int]:
    """(command line of a process, its parent); ([], 0) where it may not be read."""
    try:
        process = psutil.Process(pid)
        return [readable(word) for word in process.cmdline()], process.ppid()
    except (psutil.Error, OSError):
        return [], 0


def own_users() -> set[str]:
    """Names of the user who runs this: who called sudo, too."""
    names = {readable(psutil.Process().username())}
    if os.geteuid() == 0 and os.environ.get("SUDO_USER"):
        names.add(readable(os.environ["SUDO_USER"]))
    return names
