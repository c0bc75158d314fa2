"""Which of the jobs on this host a person means."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import NoRanksFound
from ..text.job_names import short_job
from ..text.plural import count
from .discover import Job
from .jobnames import is_exactly

_NAMED = 6  # jobs in one line


def select_job(jobs: list[Job], wanted: str = "") -> tuple[Job, list[str]]:
    """The job that `wanted` names (its key, or a part of it), otherwise the newest; with a note
    where there was a choice.

    Raises:
        NoRanksFound: there is none, or none of that name.
    """
    if not jobs:
        raise NoRanksFound("no rank processes found on this host")
    job = _named(jobs, wanted)
    notes = list(job.notes)
    several = len({j.user for j in jobs}) > 1
    others = [_in_brief(j, with_user=several) for j in jobs if j is not job]
    if others:
        how = "--job" if wanted else "the newest; choose another with --job"
        notes.append(
            f"captured job {short_job(job.key)} ({how}); also on this host: {', '.join(others)}"
        )
    return job, notes


def _named(jobs: list[Job], wanted: str) -> Job:
    matching = [j for j in jobs if is_exactly(wanted, *j.names)]
    matching = matching or [j for j in jobs if j.is_named(wanted)]
    if not matching:
        names = ", ".join(short_job(j.key) for j in jobs)
        raise NoRanksFound(
            f"no job '{wanted}' on this host", f"Running here: {names}. Choose one with --job."
        )
    # Of several users' under one name, the one with most ranks: a process that only borrows the
    # name is alone.
    alike = [j for j in matching if j.key == matching[0].key]
    return max(alike, key=lambda j: len(j.ranks))


def _in_brief(job: Job, *, with_user: bool) -> str:
    owner = f"of {job.user}, " if with_user else ""
    return f"{short_job(job.key)} ({owner}{count(len(job.ranks), 'rank')})"


def here_now(keys: Sequence[str]) -> str:
    """The jobs on this host, for a person who gave the name of another one."""
    if not keys:
        return "no other job is on this host"
    named = ", ".join(map(short_job, keys[:_NAMED]))
    more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
    return f"jobs on this host: {named}{more}"
