"""Programs that ranks start have the ranks' environment: they look like a job of their own.

Ray gives its workers RANK after they were started, which /proc does not show; a program that a worker
starts shows it. So do helpers of ranks that only their parent numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import proc
from .discover import Job

Above = Callable[[int], list[int]]


def without_helpers(jobs: Sequence[Job], above: Above = proc.above) -> list[Job]:
    """Those whose processes are not all started by the ranks of another job, each by another one of
    them. One rank that starts several is a launcher, and what it starts a job.
    """
    owners = {found.pid: job for job in jobs if len(job.ranks) > 1 for found in job.ranks}
    return [job for job in jobs if not _is_of_others(job, owners, above)]


def _is_of_others(job: Job, owners: dict[int, Job], above: Above) -> bool:
    if max(found.world_size for found in job.ranks) < 2:
        return False  # a job of one process says nothing of others
    starters: set[int] = set()
    for found in job.ranks:
        by = next((p for p in above(found.pid) if p in owners and owners[p] is not job), 0)
        if not by:
            return False
        starters.add(by)
    return len(starters) == len(job.ranks)
