"""A pipeline whose rounds change, on all ranks but one: the one that goes on as before is named."""

from __future__ import annotations

import pytest

from hangdoctor.diagnosis.ops import diagnose_ops
from tests.support.ops_programs import Job, only_cause

STAGES = 4


def pipeline(rounds: list[int], odd: int, its: list[int], ends: bool = True) -> Job:
    """Stages that pass on so many micro-batches in each round, one of them its own numbers; at the end
    of a round all reduce, or none does.
    """
    job = Job(STAGES)
    for rank in range(STAGES):
        for number in its if rank == odd else rounds:
            _one_round(job, rank, number)
            if ends:
                job.rank(rank).all_reduce("world", site="clip (train.py:59)")
    return job


def _one_round(job: Job, rank: int, number: int) -> None:
    program = job.rank(rank)
    for _ in range(number):
        if rank > 0:
            program.recv(rank - 1)
        if rank < STAGES - 1:
            program.send(rank + 1, asynchronous=True)
    for _ in range(number):
        if rank < STAGES - 1:
            program.recv(rank + 1)
        if rank > 0:
            program.send(rank - 1, asynchronous=True)


@pytest.mark.parametrize("odd", [1, 2])
@pytest.mark.parametrize("ends", [True, False])
def test_who_goes_on_as_before_where_all_others_change_is_named(odd: int, ends: bool) -> None:
    job = pipeline([2, 2, 2, 2, 4, 4], odd, [2] * 6, ends)
    cause = only_cause(diagnose_ops(job.run()))
    assert (cause.kind, cause.ranks, cause.confidence) == ("p2p_unmatched", [odd], 0.7)
    assert "repeats its earlier sends and receives where" in cause.summary
    assert f"See what rank {odd} takes its number of micro-batches" in cause.advice


def test_who_is_in_a_collective_while_two_wait_for_transfers_of_it_is_named() -> None:
    """As of a stage with fewer micro-batches, in its first round."""
    job = Job(3)
    for rank in (0, 2):
        job.rank(rank).recv(1, site="backward (pipe.py:59)")
    for rank in range(3):
        job.rank(rank).all_reduce("world", site="clip (pipe.py:80)")
    cause = only_cause(diagnose_ops(job.run()))
    assert (cause.kind, cause.ranks, cause.confidence) == ("p2p_unmatched", [1], 0.7)
    assert "never posted the send" in cause.summary
    assert sorted(e.ranks for e in cause.evidence) == [[0], [2]]


def test_rounds_that_always_differ_show_nothing() -> None:
    job = pipeline([2, 3, 2, 4], 2, [2, 3, 2, 3])
    cause = only_cause(diagnose_ops(job.run()))
    assert len(cause.ranks) == 2, cause.summary
