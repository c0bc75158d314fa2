"""A job by one of its processes: a rank, what a rank has started, or what has started the ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..text.ranges import number_in
from . import job_scripts, proc
from .discover import Job

_MOST = 64  # processes one above the other


def is_meant(job: Job, wanted: str) -> bool:
    """Whether a job has this name, the process of this number (its launcher may be older than its
    ranks), or this script.
    """
    pids = [found.pid for found in job.ranks]
    named = job.is_named(wanted) or is_process_of(number_in(wanted), pids)
    return named or job_scripts.runs(job, wanted)


def jobs_of(wanted: str, jobs: Sequence[Job]) -> list[Job]:
    """The jobs that the process of this number belongs to; none where it is no number, or no
    process of theirs. A shell that has started several jobs belongs to each of them.
    """
    pid = number_in(wanted)
    return [job for job in jobs if is_process_of(pid, [found.pid for found in job.ranks])]


def is_process_of(pid: int, ranks: Iterable[int]) -> bool:
    """Whether a living process is one of these ranks, above one of them or below one."""
    pids = set(ranks)
    if pid <= 1 or not proc.stat_fields(pid):
        return False
    return bool(pids & {pid, *_above(pid)}) or any(pid in _above(rank) for rank in pids)


def _above(pid: int) -> list[int]:
    """The processes above one, nearest first, without the first process of the host."""
    found: list[int] = []
    while len(found) < _MOST:
        fields = proc.stat_fields(pid)
        pid = int(fields[1]) if len(fields) > 1 else 0
        if pid <= 1:
            break
        found.append(pid)
    return found
