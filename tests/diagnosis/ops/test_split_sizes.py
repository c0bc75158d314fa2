"""An all_to_all that all have entered, of which one sends another number than its receiver expects."""

from __future__ import annotations

from hangdoctor.diagnosis.ops import diagnose_ops
from hangdoctor.model.operations import Operation
from hangdoctor.model.splits import Splits
from tests.support.ops_programs import only_cause
from tests.support.ops_records import done, entered, evidence, rank_ops

WORLD = [0, 1, 2, 3]
EVEN = (4, 4, 4, 4)


def call(sends: tuple[int, ...], receives: tuple[int, ...] = EVEN, modulus: int = 0) -> Operation:
    return entered(WORLD, 7, "all_to_all_single", detail=str(Splits(sends, receives, modulus)))


def test_one_pair_disagrees() -> None:
    """Which of the two is wrong does not show."""
    calls = [call(EVEN), call((4, 4, 4, 0)), call(EVEN), call(EVEN)]
    cause = only_cause(diagnose_ops(evidence(rank_ops(r, 4, [c]) for r, c in enumerate(calls))))
    assert (cause.kind, cause.ranks) == ("mismatch", [1, 3])
    assert "rank 1 sends 0 items to rank 3, which expects 4" in cause.summary


def test_the_one_that_disagrees_with_several_is_named_alone() -> None:
    calls = [call(EVEN), call((4, 4, 3, 0)), call(EVEN), call(EVEN)]
    cause = only_cause(diagnose_ops(evidence(rank_ops(r, 4, [c]) for r, c in enumerate(calls))))
    assert (cause.kind, cause.ranks) == ("mismatch", [1])
    assert "with ranks 2-3: rank 1 sends 3 items to rank 2, which expects 4" in cause.summary


def test_those_that_have_left_it_tell_too() -> None:
    """Who has all that it expects goes on."""
    left = [
        done(WORLD, 7, "all_to_all_single", detail=str(Splits(s, EVEN)))
        for s in (EVEN, (4, 4, 4, 0), EVEN)
    ]
    ranks = [rank_ops(r, 4, [o, entered(WORLD, 8)]) for r, o in enumerate(left)]
    verdict = diagnose_ops(evidence([*ranks, rank_ops(3, 4, [call(EVEN)])]))
    assert [(c.kind, c.ranks) for c in verdict.findings] == [("mismatch", [1, 3])]


def test_numbers_that_were_cut_are_compared_as_far_as_they_go() -> None:
    calls = [
        call(EVEN),
        call((4, 4, 4, 60), modulus=64),
        call(EVEN),
        call((4, 4, 4, 4), (4, 60, 4, 4), 64),
    ]
    told = diagnose_ops(evidence(rank_ops(r, 4, [c]) for r, c in enumerate(calls)))
    assert only_cause(told).kind == "in_communication"
    calls[1] = call((4, 4, 4, 61), modulus=64)
    cause = only_cause(diagnose_ops(evidence(rank_ops(r, 4, [c]) for r, c in enumerate(calls))))
    assert "rank 1 sends another number of items to rank 3 than that one expects" in cause.summary


def test_where_all_agree_nobody_is_accused() -> None:
    calls = [rank_ops(r, 4, [call(EVEN)]) for r in WORLD]
    assert only_cause(diagnose_ops(evidence(calls))).kind == "in_communication"
