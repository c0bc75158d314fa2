"""Two ranks that disagree in a transfer: the one that also has transfers which no rank answers, and
leaves out those that a third rank waits for, exchanges with the wrong ranks.
"""

from __future__ import annotations

from hangdoctor.diagnosis.ops import OpsEvidence, diagnose_ops
from hangdoctor.model.operations import Operation, RankOps, group_uid
from tests.support.ops_programs import causes
from tests.support.ops_records import done, entered, evidence, rank_ops

WORLD = [0, 1, 2, 3]
SITE = "exchange (/app/halo.py:{})"
UP, DOWN = 14, 19  # lines


def half(op: str, seq: int, peer: int, line: int, waited: bool) -> Operation:
    """One that is open; to the neighbour above with tag 11, from it with tag 12."""
    up = line == UP
    tag = 11 if (op == "send") == up else 12
    return Operation(
        group_uid(WORLD),
        seq,
        op,
        "entered",
        peer=peer,
        asynchronous=True,
        waited=waited,
        entered_s=50.0,
        site=SITE.format(line),
        detail=f"tag {tag}",
    )


def exchange(rank: int, above: int, below: int, numbers: dict[int, int]) -> RankOps:
    """With the neighbours on both sides of a chain, -1 for none; it waits for the first of all."""
    calls = [done(WORLD, 1, "all_gather_object", site="balance (/app/halo.py:56)", left_s=49.0)]
    for peer, line in ((above, UP), (below, DOWN)):
        for op in ("recv", "send") if peer >= 0 else ():
            calls.append(half(op, numbers.get(peer, 1), peer, line, waited=len(calls) == 1))
    return rank_ops(rank, 4, calls)


def chain(old: bool) -> OpsEvidence:
    """The new order is 0-2-1-3; rank 2 keeps that of before, 0-1-2-3, with `old`. Of ranks 1 and 2,
    who were neighbours before, each takes the other for the one above.
    """
    second = exchange(2, 1, 3, {1: 9, 3: 9}) if old else exchange(2, 0, 1, {1: 9})
    ahead = exchange(3, 1, -1, {1: 2})  # it had its first exchange with rank 1
    first = [half(op, 1, 1, UP, waited=False) for op in ("recv", "send")]
    for op in first:
        op.state, op.left_s = "done", 50.5
    ahead.operations = [*ahead.operations[:1], *first, *ahead.operations[1:]]
    ranks = [exchange(0, -1, 2, {}), exchange(1, 2, 3, {2: 9}), second, ahead]
    return evidence(ranks, ranks)


def test_of_two_that_take_each_other_for_the_one_above_the_one_with_the_old_order_is_named() -> (
    None
):
    [cause] = causes(diagnose_ops(chain(old=True)))
    assert (cause.kind, cause.ranks) == ("p2p_unmatched", [2]), cause
    assert (
        "it exchanges with rank 3, which does not expect it; rank 0 waits for it" in cause.summary
    )


def test_neither_is_where_all_have_the_new_one() -> None:
    assert all("partners" not in c.summary for c in causes(diagnose_ops(chain(old=False))))


def swap(third: bool) -> OpsEvidence:
    """Rank 2 swaps with rank 1, which reduces with all; rank 3 waits for rank 2, or reduces too."""
    rest = [entered(WORLD, 2, "all_reduce", site="pool (/app/mc.py:101)", entered_s=50.0)]
    own = exchange(2, 1, -1, {})
    waits = exchange(3, 2, -1, {}) if third else rank_ops(3, 4, rest)
    ranks = [rank_ops(0, 4, rest), rank_ops(1, 4, rest), own, waits]
    return evidence(ranks, ranks)


def test_a_transfer_with_one_that_is_in_a_collective_is_with_the_wrong_rank_where_a_third_waits() -> (
    None
):
    [cause] = causes(diagnose_ops(swap(third=True)))
    assert (cause.kind, cause.ranks) == ("p2p_unmatched", [2]), cause
    assert "rank 3 waits for it" in cause.summary
    assert all(
        "rank 3 waits for it" not in c.summary for c in causes(diagnose_ops(swap(third=False)))
    )
