"""Keys of the store that say which rank is to set them."""

from __future__ import annotations

import pytest

from hangdoctor.diagnosis.ops import diagnose_ops
from hangdoctor.diagnosis.ops.key_setters import setter
from hangdoctor.model.operations import Operation, RankOps
from tests.support.ops_programs import only_cause
from tests.support.ops_records import done, entered, evidence, rank_ops

WORLD = 4
COLLECT = {"site": "collect (learner.py:41)"}


def wait(number: int, key: str, state: str = "done", **fields: object) -> Operation:
    return Operation("", number, "store_wait", state, detail=key, **fields)  # type: ignore[arg-type]


def waits(*keys: str) -> RankOps:
    """Rank 0 of four, in the last of these waits."""
    before = [wait(n, key, **COLLECT) for n, key in enumerate(keys[:-1], 1)]
    last = wait(len(keys), keys[-1], "entered", **COLLECT)
    return rank_ops(0, WORLD, [*before, last])


ROUND = ("got/1/1", "got/1/2", "got/1/3")
SAID: dict[str, tuple[tuple[str, ...], int | None]] = {
    "its word": (("ready_rank3",), 3),
    "a round of ranks before": ((*ROUND, "got/2/1", "got/2/2"), 2),
    "numbers in the other order": (("1.v1", "2.v1", "3.v1", "1.v2"), 1),
    "no round before": (("got/1/1", "got/1/2", "got/1/3"), None),
    "a count": (("step/1", "step/2", "step/3"), None),
    "more numbers than ranks": ((*ROUND, "got/1/4", "got/2/2"), None),
    "another line's keys": (("got/2/1",), None),
    "its own": (("rank0/ready",), None),
    "a rank that there is not": (("rank7/ready",), None),
    "two ranks": (("rank1/to/rank2",), None),
    "several keys": (("rank1/a,rank1/b",), None),
    "no key": (("",), None),
}


@pytest.mark.parametrize("case", SAID)
def test_who_is_to_set_it(case: str) -> None:
    keys, rank = SAID[case]
    ops = waits(*keys)
    assert setter(ops, ops.operations[-1]) == rank


def test_the_chain_of_waits_goes_on_at_the_rank_that_is_to_set_the_key() -> None:
    """An actor waits for a score that the learner makes in other rounds; the others are in their sends."""
    world = range(WORLD)
    learner = waits(*ROUND, "got/2/1", "got/2/2", "got/2/3")
    actor = rank_ops(3, WORLD, [done(world, 1, "send", peer=0), wait(1, "score/1", "entered")])
    others = [
        rank_ops(r, WORLD, [done(world, 1, "send", peer=0), entered(world, 2, "send", peer=0)])
        for r in (1, 2)
    ]
    learner.operations[3:3] = [done(world, 1, "recv", peer=r) for r in (1, 2, 3)]
    cause = only_cause(diagnose_ops(evidence([learner, *others, actor])))
    assert (cause.kind, cause.ranks) == ("not_entered", [3])
    assert "score/1" in cause.summary
    assert [0] in [e.ranks for e in cause.evidence]


def test_a_rank_that_is_elsewhere_is_named_by_the_key_that_it_lacks() -> None:
    world = range(WORLD)
    ended = [done(world, 1, "barrier")]
    waiter = waits("rank2/shard")
    waiter.operations.insert(0, ended[0])
    ranks = [waiter, *(rank_ops(r, WORLD, ended) for r in (1, 2, 3))]
    cause = only_cause(diagnose_ops(evidence(ranks)))
    assert (cause.kind, cause.ranks) == ("not_entered", [2])
    assert "Rank 2 never reached the line that sets rank2/shard" in cause.summary
