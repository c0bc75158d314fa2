"""A rank that leaves several calls of one line out goes on to those that come after them."""

from __future__ import annotations

import pytest

from hangdoctor.diagnosis.ops import OpsEvidence, diagnose_ops
from hangdoctor.model.operations import Operation
from tests.support.ops_programs import Job, causes, only_cause
from tests.support.ops_records import done, entered, evidence, rank_ops

WORLD = [0, 1, 2, 3]
THERE, BACK, GRADS = "forward (moe.py:36)", "backward (moe.py:42)", "sync (train.py:126)"


def step(first: int, there: int, back: int) -> list[Operation]:
    """So many all_to_all of the forward, then as many of the backward, numbered from `first`."""
    sites = [THERE] * there + [BACK] * back
    return [
        done(WORLD, first + at, "all_to_all_single", site=site) for at, site in enumerate(sites)
    ]


def job(left_out: int) -> OpsEvidence:
    """Two layers with a second round each, in which rank 2 has nothing to send in the last step."""
    ranks = []
    for rank in WORLD:
        calls = [
            op
            for n in range(3)
            for op in [*step(9 * n + 1, 4, 4), done(WORLD, 9 * n + 9, site=GRADS)]
        ]
        if rank == 2:
            calls += step(28, 4 - left_out, 4 - left_out)
            calls.append(entered(WORLD, 36 - 2 * left_out, site=GRADS))
        else:
            calls += step(28, 4, 4 - left_out)
            calls.append(entered(WORLD, 36 - left_out, "all_to_all_single", site=BACK))
        ranks.append(rank_ops(rank, 4, calls))
    return evidence(ranks, ranks)


@pytest.mark.parametrize("left_out", [1, 2])
def test_it_skipped_them_and_did_not_make_another_call(left_out: int) -> None:
    [cause] = causes(diagnose_ops(job(left_out)))
    assert (cause.kind, cause.ranks) == ("order", [2]), cause
    assert "skipped all_to_all" in cause.summary and "moe.py:36" in cause.summary


def test_who_went_on_from_a_call_to_which_others_have_come_left_it_out() -> None:
    """Three by two ranks that reduce in their column, then in their row; ranks 1 and 4 leave the
    column out. Ranks 2 and 3 wait there beside the ring.
    """
    job = Job(6)
    for ranks in ([0, 2, 4], [1, 3, 5]):
        job.group("column", ranks)
    for ranks in ([0, 1], [2, 3], [4, 5]):
        job.group("row", ranks)
    for rank in range(6):
        for _ in range(4):
            job.rank(rank).all_reduce("column").all_reduce("row")
        job.rank(rank).all_reduce("row" if rank in (1, 4) else "column")
    cause = only_cause(diagnose_ops(job.run()))
    assert (cause.kind, cause.ranks) == ("order", [1, 4]), cause
    assert "skipped all_reduce" in cause.summary
