"""Two ranks that send to one another: the one between a sender and a receiver of the same number is named."""

from __future__ import annotations

import pytest

from hangdoctor.diagnosis.ops import OpsEvidence, diagnose_ops
from hangdoctor.model.operations import Operation
from tests.support.ops_programs import causes
from tests.support.ops_records import done, entered, evidence, rank_ops

ALL = [0, 1, 2, 3]


def send(to: int, number: int, now: bool = False) -> Operation:
    return (entered if now else done)(ALL, number, "send", peer=to, shapes="[4]")


def recv(of: int, number: int, now: bool = False) -> Operation:
    return (entered if now else done)(ALL, number, "recv", peer=of, shapes="[4]")


def pipeline(number: int, passes_on: bool = True) -> OpsEvidence:
    """Rank 0 sends a third activation to rank 1, which sends its gradient back instead; rank 2 waits for activation
    `number` of rank 1, or for something of rank 3.
    """
    first = [send(1, 1), send(1, 2), send(1, 3, now=True)]
    second = [recv(0, 1), send(2, 1), recv(0, 2), send(2, 2), recv(2, 1), send(0, 1, now=True)]
    third = [recv(1, 1), send(3, 1), recv(1, 2), send(3, 2), recv(3, 1), send(1, 1)]
    third += [recv(1, number, now=True) if passes_on else recv(3, 2, now=True)]
    last = [recv(2, 1), send(2, 1), recv(2, 2), send(2, 2, now=True)]
    ops = [rank_ops(rank, 4, calls) for rank, calls in enumerate((first, second, third, last))]
    return evidence(ops, ops)


def test_the_one_that_did_not_pass_on_what_both_neighbours_expect() -> None:
    [cause] = causes(diagnose_ops(pipeline(3)))
    assert (cause.kind, cause.ranks, cause.confidence) == ("p2p_unmatched", [1], 0.65)
    assert "never posted the recv that matches send #3 of rank 0" in cause.summary


@pytest.mark.parametrize(
    ("number", "passes_on"), [(4, True), (3, False)], ids=["another number", "nobody waits for it"]
)
def test_else_both_are_named(number: int, passes_on: bool) -> None:
    found = causes(diagnose_ops(pipeline(number, passes_on)))
    assert all("never posted the recv that matches send #3" not in c.summary for c in found)
