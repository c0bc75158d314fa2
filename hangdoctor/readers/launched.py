"""The ranks that a launcher has started: what a person means who names `hangdoctor run` or torchrun
by its process id.
"""

from __future__ import annotations

import psutil

from . import descendants, discover, families
from .discover import Found
from .rank_environment import is_launcher, is_python

_MOST = 64  # processes below a launcher that are asked whether they started a family


def is_launching(pid: int) -> bool:
    """Whether the process is a launcher."""
    return is_launcher(_argv(pid))


def ranks_below(pid: int) -> tuple[list[Found], list[str]]:
    """(ranks that a process started, over others too; notes on them), in the order of their ranks;
    ([], []) where nothing below it is one.
    """
    family = descendants.parents()
    found: list[Found] = []
    others: list[int] = []
    waiting = list(family.get(pid, ()))
    while waiting:
        child = waiting.pop(0)
        rank = discover.candidate(child, None)
        if rank is not None:
            found.append(rank)  # what it starts has its environment and is no rank
            continue
        others.append(child)
        waiting += family.get(child, ())
    started = families.job_below(found[0].pid) if len(found) == 1 else None
    if started is not None:  # the first rank started the others, as Lightning's launcher does
        return started.ranks, started.notes
    if found:
        return sorted(found, key=lambda f: (f.rank, f.started)), []
    for parent in [other for other in others if len(family.get(other, ())) > 0][:_MOST]:
        job = families.job_below(parent)
        if job is not None:
            return job.ranks, job.notes
    return [], []


def program_below(pid: int) -> int:
    """The first Python below a launcher that is no launcher itself, 0 where there is none: a
    training of one process has no rank in its environment.
    """
    family = descendants.parents()
    waiting = list(family.get(pid, ()))
    while waiting:
        child = waiting.pop(0)
        argv = _argv(child)
        if is_python(child, argv) and not is_launcher(argv):
            return child
        waiting += family.get(child, ())
    return 0


def _argv(pid: int) -> list[str]:
    try:
        return psutil.Process(pid).cmdline()
    except psutil.Error:
        return []
