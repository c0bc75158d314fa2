"""Which of the jobs on this host a person means."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import NoRanksFound
from . import discover, families, job_process, job_scripts
from .discover import Job
from .job_words import in_brief, listed, own_users
from .jobnames import is_exactly

_SEARCH_S = 4.0  # milliseconds, where every process answers


def select_job(jobs: list[Job], wanted: str = "") -> tuple[Job, str]:
    """The job that `wanted` names (its key, a part of it, one of its processes, or its script),
    otherwise the one that is most likely meant; where there was a choice, also which it was.

    Raises:
        NoRanksFound: there is none, or none of that name.
        UsageError: it names the script of several.
    """
    if not jobs:
        raise NoRanksFound("no rank processes found on this host")
    job = _one_named(jobs, wanted) if wanted else preferred(jobs)
    return job, choice(job, jobs, wanted) if len(jobs) > 1 else ""


def choice(job: Job, jobs: Sequence[Job], wanted: str) -> str:
    """The job that was taken, and, where there are others: why, and which these are."""
    several = len({j.user for j in jobs}) > 1
    taken = in_brief(job, with_user=several)
    others = [j for j in jobs if j is not job]
    if not others:
        return taken
    how = "named by --job" if wanted else why_taken(job, jobs)
    return f"{taken}, {how}; also on this host: {listed(others, with_user=several)}"


def preferred(jobs: Sequence[Job]) -> Job:
    """The job that is meant where none was named: of this user before those of others, with
    several ranks before what runs alone, then the newest. `jobs` has one.
    """
    own = own_users()
    return max(jobs, key=lambda job: (job.user in own, _has_several(job), job.started))


def _has_several(job: Job) -> bool:
    """Whether it was started with several ranks. That one of them is dead may be why it hangs."""
    return max(f.world_size for f in job.ranks) > 1


def why_taken(job: Job, jobs: Sequence[Job]) -> str:
    """Why `preferred` took this one, and how to choose another."""
    newest = max(jobs, key=lambda j: j.started)
    own = own_users()
    if job is newest:
        why = "the newest"
    elif job.user in own and newest.user not in own:
        why = "your newest"
    else:
        why = "the newest with several ranks"
    return f"{why} (choose another with --job KEY)"


def all_here() -> list[Job]:
    """All jobs on this host, newest first: those that nothing numbers, too."""
    held: set[int] = set()
    jobs, _ = discover.search("", _SEARCH_S, held)
    return families.with_families(jobs, discover.uid_of(""), _SEARCH_S / 2, held)


def key_of(wanted: str, jobs: Sequence[Job]) -> str:
    """The key of the job whose process or script `wanted` is, where it is no job's name; else
    `wanted`. What looks for a job again and again needs a name: a process may end before its job.

    Raises:
        UsageError: it names the script of several.
    """
    if not wanted or any(job.is_named(wanted) for job in jobs):
        return wanted
    of = job_process.jobs_of(wanted, jobs) or job_scripts.jobs_of(wanted, jobs)
    return preferred(of).key if of else wanted


def named(jobs: Sequence[Job], wanted: str) -> list[Job]:
    """The jobs that `wanted` names: exactly, by a part of the key, by a process of the job, or by its
    script.

    Raises:
        UsageError: it names the script of several.
    """
    found = [j for j in jobs if is_exactly(wanted, *j.names)]
    found = found or [j for j in jobs if j.is_named(wanted)]
    return found or job_process.jobs_of(wanted, jobs) or job_scripts.jobs_of(wanted, jobs)


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
