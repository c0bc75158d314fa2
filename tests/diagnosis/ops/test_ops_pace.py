"""Who moved between two captures, and which rank the others wait for in a job that goes on."""

from __future__ import annotations

import pytest

from hangdoctor.diagnosis.ops import OpsEvidence, diagnose_ops
from hangdoctor.diagnosis.ops.moved import moved
from hangdoctor.model.operations import Operation, RankOps
from tests.support.ops_programs import Job, causes, notes
from tests.support.ops_records import done, entered, evidence, rank_ops

OPEN, DONE = Operation("g", 3, "all_reduce"), Operation("g", 3, "all_reduce", "done")
MOVED = {
    "another iteration": (RankOps(0, iteration=3), RankOps(0, iteration=4)),
    "it has ended": (RankOps(0), RankOps(0, finished=True)),
    "its first operation": (RankOps(0), RankOps(0, operations=[OPEN])),
    "a restart without records": (RankOps(0, operations=[OPEN]), RankOps(0)),
    "it completed one": (RankOps(0, operations=[OPEN]), RankOps(0, operations=[DONE])),
    "another number": (
        RankOps(0, operations=[DONE]),
        RankOps(0, operations=[Operation("g", 4, "all_reduce", "done")]),
    ),
    "another group": (
        RankOps(0, operations=[OPEN]),
        RankOps(0, operations=[Operation("h", 3, "all_reduce")]),
    ),
    "another peer": (
        RankOps(0, operations=[Operation("g", 3, "send", peer=1)]),
        RankOps(0, operations=[Operation("g", 3, "send", peer=2)]),
    ),
    "an older one, below the newest": (
        RankOps(0, operations=[OPEN, Operation("g", 4, "all_reduce")]),
        RankOps(0, operations=[DONE, Operation("g", 4, "all_reduce")]),
    ),
}
STILL = {
    "in one operation": (RankOps(0, operations=[OPEN]), RankOps(0, operations=[OPEN])),
    "in none": (RankOps(0), RankOps(0)),
    "older records are overwritten": (
        RankOps(0, operations=[DONE, OPEN]),
        RankOps(0, operations=[OPEN]),
    ),
    "only a thread beside the training went on": (
        RankOps(0, operations=[OPEN], side=[7]),
        RankOps(0, operations=[OPEN, Operation("g", 9, "store_wait", thread=7)], side=[7]),
    ),
}


@pytest.mark.parametrize("what", MOVED)
def test_a_rank_has_moved(what: str) -> None:
    assert moved(*MOVED[what])


@pytest.mark.parametrize("what", STILL)
def test_a_rank_has_not_moved(what: str) -> None:
    assert not moved(*STILL[what])


# ----------------------------------------------------------------- by the time that each waits


def reducing(seconds: dict[int, float], ranks: int = 4, steps: int = 12) -> OpsEvidence:
    """Each rank computes so long before each reduction; both captures are inside of the job."""
    job = Job(ranks)
    for program in job.everyone():
        for _ in range(steps):
            program.compute(seconds.get(program.number, 0.1)).all_reduce()
    later = job.run(limit=steps - 2)
    later.earlier = job.run(limit=steps // 2).ops
    return later


def test_the_slow_one_is_named_with_both_shares() -> None:
    verdict = diagnose_ops(reducing({2: 1.0}))
    assert verdict.status == "slow"
    (cause,) = causes(verdict)
    assert (cause.kind, cause.ranks, cause.confidence) == ("slow", [2], 0.85)
    assert "the others spend 91 % of their time waiting, this one 0 %" in cause.summary
    assert [e.ranks for e in cause.evidence] == [[2]]


HEALTHY = {
    "all alike": ({}, 4, 12),
    "one that is little slower": ({2: 0.11}, 4, 12),
    "too few operations": ({2: 1.0}, 4, 5),
}


@pytest.mark.parametrize("case", HEALTHY)
def test_else_no_rank_is_named_slow(case: str) -> None:
    seconds, ranks, steps = HEALTHY[case]
    verdict = diagnose_ops(reducing(seconds, ranks, steps))
    assert (verdict.status, verdict.findings) == ("healthy", [])


def test_one_of_two_can_be_the_slow_one() -> None:
    verdict = diagnose_ops(reducing({0: 1.0}, ranks=2))
    assert [c.ranks for c in causes(verdict)] == [[0]]


def test_of_a_job_that_does_not_go_on_none_is_slow() -> None:
    """No record shows a wait, as where all poll for a file, and none has grown."""
    of = reducing({2: 1.0})
    for ops in of.ops.values():
        ops.operations = [o for o in ops.operations if o.state == "done"]
    of.earlier = dict(of.ops)
    assert diagnose_ops(of).findings == []


def test_without_times_no_rank_is_named_slow() -> None:
    of = reducing({2: 1.0})
    for op in of.ops[3].operations:
        op.left_s = 0.0
    assert diagnose_ops(of).status == "healthy"


def test_two_still_ranks_leave_it_open() -> None:
    """Half of the job moves and the other half waits for it: not yet a hang, and not healthy."""
    of = reducing({})
    for rank in (0, 1):
        of.earlier[rank] = of.ops[rank]
    verdict = diagnose_ops(of)
    assert (verdict.status, verdict.findings) == ("unknown", [])
    assert any("see their stacks" in n or "Some ranks moved" in n for n in notes(verdict))


# ----------------------------------------------------------------- by completions alone


def completing(
    slow: dict[int, float], ranks: int = 3, calls: str = "abc", state: str = "done"
) -> OpsEvidence:
    """Devices that report only when they have completed something: three rounds of calls in pairs of neighbours.

    `slow`: seconds that a rank takes for each call; others take 0.1 s, or wait for a slow neighbour.
    """
    pairs = [[r, r + 1] for r in range(ranks - 1)]
    operations: list[list[Operation]] = [[] for _ in range(ranks)]
    clock = [1000.0] * ranks
    numbers = [0] * len(pairs)
    for _ in range(3):
        for site in calls:
            for at, pair in enumerate(pairs):
                numbers[at] += 1
                for rank in pair:
                    clock[rank] += slow.get(rank, 0.1)
                    own = done(
                        pair,
                        numbers[at],
                        site=f"{site} (m.py:1)",
                        left_s=clock[rank],
                        asynchronous=True,
                    )
                    operations[rank].append(own)
    now = [
        rank_ops(r, ranks, operations[r], *(p for p in pairs if r in p), runs_ahead=True)
        for r in range(ranks)
    ]
    before = [rank_ops(r, ranks, operations[r][:-2], runs_ahead=True) for r in range(ranks)]
    return evidence(now, before)


@pytest.mark.parametrize("slowest", [0, 1, 2])
def test_the_one_that_takes_long_in_every_call_is_slow(slowest: int) -> None:
    verdict = diagnose_ops(completing({slowest: 1.0}))
    assert verdict.status == "slow"
    (cause,) = causes(verdict)
    assert (cause.kind, cause.ranks, cause.confidence) == ("slow", [slowest], 0.8)
    assert "10.0 times as long as others in each call" in cause.summary


EVEN = {
    "all alike": ({}, 3, "abc"),
    "less than twice": ({1: 0.19}, 3, "abc"),
    "two of them": ({0: 1.0, 1: 0.9}, 4, "abc"),
    "too few kinds of calls": ({1: 1.0}, 3, "ab"),
    "too few ranks": ({1: 1.0}, 2, "abc"),
}


@pytest.mark.parametrize("case", EVEN)
def test_else_none_is_slow_by_its_pace(case: str) -> None:
    slow, ranks, calls = EVEN[case]
    verdict = diagnose_ops(completing(slow, ranks, calls))
    assert (verdict.status, verdict.findings) == ("healthy", [])


def test_calls_of_the_whole_job_show_no_difference() -> None:
    """All wait in them for the slowest one; what lies before is not its work alone."""
    world = range(3)
    ranks = []
    for rank in world:
        calls = [
            done(world, n, site=f"{site} (m.py:1)", left_s=1000.0 + (5.0 if rank == 1 else 1.0) * n)
            for n, site in enumerate("abcabcabc", 1)
        ]
        ranks.append(rank_ops(rank, 3, calls, runs_ahead=True))
    before = [rank_ops(r, 3, list(ranks[r].operations)[:-2], runs_ahead=True) for r in world]
    assert diagnose_ops(evidence(ranks, before)).status == "healthy"


def test_what_is_pending_ends_the_times_of_a_rank() -> None:
    """Behind the first incomplete operation, times are of the enqueueing and not of the device."""
    of = completing({})
    operations = of.ops[1].operations
    assert isinstance(operations, list)
    operations.append(entered([0, 1], 99))
    for n in range(1, 4):
        operations.append(done([1, 2], 90 + n, site="abc"[n - 1] + " (m.py:1)", left_s=9000.0 * n))
    assert all(c.kind != "slow" for c in diagnose_ops(of).findings)
