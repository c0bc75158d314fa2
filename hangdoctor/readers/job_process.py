"""A job by one of its processes: a rank, what a rank has started, or what has started the ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..text.ranges import number_in
from . import job_scripts, proc
from .discover import Job


class Meant:
    """The jobs that a name, the number of a process or a script means, for one that asks again and
    again.

    Whether it is a name or a process is settled by the first answer: a name may be the number of another
    job's process, and a number may be a later job's name. A process is the one that had the number
    at the beginning; it may be a launcher that is older than its ranks.
    """

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted
        self._pid = number_in(wanted)
        self._born = _born(self._pid)
        self._is_name = self._is_process = False

    def among(self, jobs: Sequence[Job]) -> list[Job]:
        """Those of these jobs that are meant."""
        if not self._is_process:
            named = [job for job in jobs if job.is_named(self._wanted)]
            self._is_name = self._is_name or bool(named)
            if self._is_name:
                return named
        if self._pid < 0:
            return job_scripts.of_script(self._wanted, jobs)
        if not self._born or _born(self._pid) != self._born:
            return []
        found = jobs_of(self._wanted, jobs)
        self._is_process = self._is_process or bool(found)
        return found


def _born(pid: int) -> list[str]:
    """When a process started, in ticks; [] where it is gone."""
    return proc.stat_fields(pid)[19:20] if pid > 1 else []


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
    return bool(pids & {pid, *proc.above(pid)}) or any(pid in proc.above(rank) for rank in pids)
