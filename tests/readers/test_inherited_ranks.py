"""Programs that ranks start, with the ranks' environment, are no job of their own."""

from __future__ import annotations

import pytest

from hangdoctor.readers.discover import Found, Job
from hangdoctor.readers.inherited_ranks import without_helpers

WORKERS = (10, 11, 12)
ABOVE = {20: [10, 2], 21: [15, 11, 2], 22: [12, 2], 30: [10, 2], 31: [10, 2], 40: [5, 2]}


def found(pid: int, rank: int, world: int = 3) -> Found:
    return Found(
        pid=pid,
        ppid=2,
        rank=rank,
        world_size=world,
        local_rank=-1,
        local_world_size=-1,
        job="j",
        started=1.0,
        user="u",
        argv=["python"],
        environ={},
    )


def job(key: str, *pids: int, world: int = 3) -> Job:
    return Job(key, [found(pid, rank, world) for rank, pid in enumerate(pids)])


def kept(*jobs: Job) -> list[str]:
    return [one.key for one in without_helpers(jobs, lambda pid: ABOVE.get(pid, [2]))]


@pytest.mark.parametrize("pids", [(20,), (20, 21), (20, 21, 22)])
def test_what_other_ranks_started_each_is_none(pids: tuple[int, ...]) -> None:
    assert kept(job("workers", *WORKERS), job("helpers", *pids)) == ["workers"]


@pytest.mark.parametrize(
    "other",
    [
        job("of one rank that launches", 30, 31, world=2),
        job("of one process", 20, world=1),
        job("beside", 40),
        job("partly beside", 20, 40),
    ],
)
def test_other_jobs_stay(other: Job) -> None:
    assert kept(job("workers", *WORKERS), other) == ["workers", other.key]


def test_a_launcher_of_one_rank_is_no_job_with_helpers() -> None:
    assert kept(job("launcher", 10, world=1), job("ranks", 20, world=2)) == ["launcher", "ranks"]
