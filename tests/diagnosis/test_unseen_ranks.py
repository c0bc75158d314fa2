"""Silence is not a sign of health: where ranks were not seen, the others' progress does not make
the job a healthy one.
"""

from __future__ import annotations

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import (
    JobCapture,
    NodeCapture,
    ProcessSample,
    RankCapture,
    SilentNode,
    ThreadSample,
)
from hangdoctor.model.operations import Group, Operation, RankOps


def ops(rank: int, count: int, finished: bool) -> RankOps:
    done = [
        Operation("g", n, "all_reduce", state="done", entered_s=n, left_s=n + 0.5)
        for n in range(1, count + 1)
    ]
    return RankOps(rank, 4, groups=[Group("g", [0, 1, 2, 3])], operations=done, finished=finished)


def captured(rank: int, finished: bool) -> RankCapture:
    samples = [
        ProcessSample(at, state="S", threads=[ThreadSample(tid=9, state="S", switches=1)])
        for at in (0.0, 1.0)
    ]
    return RankCapture(
        pid=9,
        rank=rank,
        node="n1",
        world_size=4,
        samples=samples,
        ops=ops(rank, 9, finished),
        ops_before=ops(rank, 9 if finished else 8, finished),
    )


@pytest.mark.parametrize("finished", [False, True], ids=["moving", "ended well"])
def test_a_job_of_which_some_ranks_were_not_seen_is_not_called_healthy(finished: bool) -> None:
    whole = JobCapture(
        "j", [NodeCapture("n1", ranks=[captured(r, finished) for r in range(4)])], world_size=4
    )
    assert diagnose(whole).status == "healthy"
    half = [NodeCapture("n1", ranks=[captured(r, finished) for r in range(2)])]
    silent = diagnose(
        JobCapture("j", half, [SilentNode("n2", "no answer within 20 s", [2, 3])], world_size=4)
    )
    assert (
        silent.status == "unknown"
        and "ranks 2-3 were not captured (n2: no answer within 20 s)" in silent.summary
    )
    absent = diagnose(JobCapture("j", half, world_size=4))
    assert (
        absent.status == "unknown"
        and "ranks 2-3 were not captured: capture the whole job" in absent.summary
    )
