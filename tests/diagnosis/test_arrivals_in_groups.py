"""Who works while the others wait, in groups of two: under HSDP no collective is one of all ranks."""

from __future__ import annotations

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import JobCapture, NodeCapture, RankCapture
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.model.operations import Group, Operation, RankOps
from tests.support.captures import LOAD, WAIT, captured, causes, sample, thread

SHARDS = {"s0": [0, 1], "s1": [2, 3]}
REPLICAS = {"r0": [0, 2], "r1": [1, 3]}
STEPS = 12
WORK_S = 0.05


def operations(extra_s: dict[int, list[float]]) -> dict[int, list[Operation]]:
    """What four ranks enter, two by two: an all_gather with their shard, then an all_reduce with
    their replica, which is over when both have come; `extra_s`: more work before each step of a rank.
    """
    free = dict.fromkeys(range(4), 100.0)
    calls: dict[int, list[Operation]] = {rank: [] for rank in range(4)}
    for step in range(STEPS):
        for seq, (groups, op) in enumerate(((SHARDS, "all_gather"), (REPLICAS, "all_reduce"))):
            for uid, members in groups.items():
                came = {}
                for rank in members:
                    extra = extra_s.get(rank, [0.0] * STEPS)[step] if seq == 0 else 0.0
                    came[rank] = free[rank] + WORK_S + extra
                    entered = Operation(uid, step + 1, op, "done", entered_s=came[rank])
                    calls[rank].append(entered)
                free.update(dict.fromkeys(members, max(came.values())))
    return calls


def job(extra_s: dict[int, list[float]], *, known: bool = True) -> Diagnosis:
    """As torch's recorder has it: no time at which an operation ended."""
    groups = [Group(uid, list(m) if known else []) for uid, m in (SHARDS | REPLICAS).items()]
    ranks = [rank_of(rank, calls, groups) for rank, calls in operations(extra_s).items()]
    return diagnose(JobCapture("j", [NodeCapture("n1", ranks=ranks)], [], 4, taken=200.0))


def rank_of(rank: int, calls: list[Operation], groups: list[Group]) -> RankCapture:
    samples = [
        sample(n, thread(at, switches=9 * n)) for n, at in ((0.0, list(LOAD)), (1.0, list(WAIT)))
    ]
    before, after = (
        RankOps(rank, 4, source="flight_recorder", groups=groups, operations=some)
        for some in (calls[:-1], calls)
    )
    return captured(rank, samples, recorded=after, recorded_before=before, ops=RankOps(rank, 4))


@pytest.mark.parametrize("slow", range(4))
def test_the_one_that_works_is_named_and_not_who_waits_for_it_first(slow: int) -> None:
    """Its partner of the shard is late, too, to the replica's all_reduce: it had waited."""
    said = job({slow: [1.2] * STEPS})
    assert (said.status, causes(said)) == ("slow", [("slow", [slow])])
    assert "the others spend 92 % of their time waiting, this one 1 %" in said.summary


def test_no_rank_of_an_even_job_is_slow() -> None:
    for extra in (
        {},
        {rank: [1.2] * STEPS for rank in range(4)},
        {1: [9.0, *[0.0] * 11]},  # once, at its start
        {1: [0.0, 1.4] * 2 + [0.0] * 8},  # twice
        {rank: [1.2 * (step % 4 == rank) for step in range(STEPS)] for rank in range(4)},
        {1: [1.2] * STEPS, 2: [1.2] * STEPS},  # two of four: neither stands out
        {1: [0.02] * STEPS},  # all within three seconds
    ):
        said = job(extra)
        assert (said.status, said.causes) == ("healthy", []), extra


def test_nothing_is_concluded_from_groups_whose_members_are_unknown() -> None:
    """Who waited until when can't be told then."""
    said = job({2: [1.2] * STEPS}, known=False)
    assert (said.status, said.causes) == ("healthy", [])
