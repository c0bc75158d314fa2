"""Processes of JAX that wait for a key of its coordination service, while others are in the program."""

from __future__ import annotations

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import Frame, JobCapture, NodeCapture, RankCapture
from tests.support.captures import causes, judged, still

JAX = "/v/site-packages/jax/_src/array.py"


def asks(rank: int) -> RankCapture:
    """It waits for a key, from the line of the loop after the update."""
    code = 'return service.blocking_key_value_get("run/folder", 60000)'
    agree = Frame("RunFolder._agree", "/app/train.py", 37, code)
    return still(rank, [agree, Frame("main", "/app/train.py", 78)])


def updates(rank: int) -> RankCapture:
    """It waits for what its devices computed with those of the others."""
    return still(rank, [Frame("ArrayImpl._value", JAX, 623), Frame("main", "/app/train.py", 74)])


@pytest.mark.parametrize(
    ("ranks", "culprit", "says"),
    [
        ([updates(0), asks(1), asks(2), asks(3)], 0, "rank 0 did not set their key"),
    ],
)
def test_the_side_of_one_is_named(ranks: list[RankCapture], culprit: int, says: str) -> None:
    found = judged(*ranks)
    assert causes(found) == [("order", [culprit])] and says in found.summary, found.summary


def test_one_that_asks_for_a_key_that_nobody_sets_keeps_all_others() -> None:
    found = judged(updates(0), updates(1), updates(2), asks(3))
    assert causes(found) == [("not_entered", [3])]
    assert "waits for a key in the store, which no rank has set; it is in RunFolder._agree" in (
        found.summary
    )


def test_two_against_two_are_two_sides() -> None:
    found = judged(updates(0), updates(1), asks(2), asks(3))
    assert not found.causes or found.causes[0].confidence <= 0.5, found.summary


def test_after_the_end_too_where_all_others_stood_at_one_line() -> None:
    ranks = [updates(0), updates(1), updates(2), asks(3)]
    capture = JobCapture("j", [NodeCapture("n1", ranks=ranks)], [], 4)
    capture.over, capture.origin = True, "files"
    found = diagnose(capture)
    assert causes(found) == [("not_entered", [3])]
    assert "waits for a key in the store" in found.summary
