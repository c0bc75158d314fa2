"""Which of the jobs on this host a person means."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import NoRanksFound
from . import job_process, lost_ranks
from .discover import Job
from .job_words import here_now, in_brief, listed, own_users
from .jobnames import is_exactly

__all__ = ["here_now", "in_brief", "listed", "named", "preferred", "select_job", "why_taken"]


def select_job(jobs: list[Job], wanted: str = "") -> tuple[Job, list[str]]:
    """The job that `wanted` names (its key, a part of it, or one of its processes), otherwise the
    one that is most likely meant; with a note where there was a choice.

    Raises:
        NoRanksFound: there is none, or none of that name.
    """
    if not jobs:
        raise NoRanksFound("no rank processes found on this host")
    job = _one_named(jobs, wanted) if wanted else preferred(jobs)
    notes = list(job.notes)
    others = [j for j in jobs if j is not job]
    if others:
        several = len({j.user for j in jobs}) > 1
        how = "named by --job" if wanted else why_taken(job, jobs)
        beside = listed(others, with_user=several)
        taken = in_brief(job, with_user=several)
        notes.append(f"captured job {taken}, {how}; also on this host: {beside}")
    return job, notes


def preferred(jobs: Sequence[Job]) -> Job:
    """The job that is meant where none was named: of this user before those of others, with all
    its ranks before what others have left behind or run alone, then the newest. `jobs` has one.
    """
    own = own_users()
    return max(jobs, key=lambda job: (job.user in own, _is_whole(job), job.started))


def _is_whole(job: Job) -> bool:
    """Whether it has several ranks, and all of them that were started on this host."""
    return max(f.world_size for f in job.ranks) > 1 and not lost_ranks.absent(job)


def why_taken(job: Job, jobs: Sequence[Job]) -> str:
    """Why `preferred` took this one, and how to choose another."""
    newest = max(jobs, key=lambda j: j.started)
    own = own_users()
    if job is newest:
        why = "the newest"
    elif job.user in own and newest.user not in own:
        why = "your newest"
    else:
        why = "the newest with all its ranks"
    return f"{why} (choose another with --job KEY)"


def named(jobs: Sequence[Job], wanted: str) -> list[Job]:
    """The jobs that `wanted` names: exactly, by a part of the key, or by a process of the job."""
    exact = [j for j in jobs if is_exactly(wanted, *j.names)]
    return exact or [j for j in jobs if j.is_named(wanted)] or job_process.jobs_of(wanted, jobs)


def _one_named(jobs: list[Job], wanted: str) -> Job:
    matching = named(jobs, wanted)
    if not matching:
        raise NoRanksFound(
            f"no job '{wanted}' on this host",
            f"Running here: {listed(jobs)}. Choose one with --job.",
        )
    # Of several users' under one name, the one with most ranks: a process that only borrows the
    # name is alone.
    alike = [j for j in matching if j.key == matching[0].key]
    return max(alike, key=lambda j: len(j.ranks))
