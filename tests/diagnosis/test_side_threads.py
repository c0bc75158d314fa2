"""Ranks of which two threads communicate, and ranks that wait for a key of the store."""

from __future__ import annotations

from hangdoctor.model.capture import Frame, RankCapture
from tests.support.captures import (
    C10D,
    MAIN,
    WAIT,
    captured,
    causes,
    judged,
    sample,
    stack,
    still,
    thread,
)

EVALUATES = stack(("all_reduce", C10D, 9), ("evaluate", "/app/evaluator.py", 20))
EVENT = stack(
    ("Condition.wait", "/usr/lib/python3.11/threading.py", 320),
    ("Event.wait", "/usr/lib/python3.11/threading.py", 622),
    ("step", "/app/train.py", 27),
    MAIN,
)


def two(rank: int, main: list[Frame]) -> RankCapture:
    both = thread(main, syscall="futex"), thread(EVALUATES, tid=21, name="evaluator")
    return captured(rank, [sample(at, *both) for at in (0.0, 1.0)])


def test_a_thread_that_communicates_beside_the_main_one_is_not_where_the_rank_is() -> None:
    said = judged(*[two(rank, WAIT) for rank in (0, 1, 3)], two(2, EVENT))
    assert causes(said) == [("not_entered", [2])], said.summary
    assert "step (train.py:27)" in said.summary


def test_where_all_main_threads_wait_for_it_it_is() -> None:
    stuck = stack(("time_out", "/app/evaluator.py", 9))
    last = captured(3, [sample(at, thread(EVENT), thread(stuck, tid=21)) for at in (0.0, 1.0)])
    said = judged(*[two(rank, EVENT) for rank in range(3)], last)
    assert causes(said) == [("not_entered", [3])], said.summary


def at_line(rank: int, line: int) -> RankCapture:
    return still(rank, stack(("all_reduce", C10D, 9), ("work", "/app/train.py", line), MAIN))


def test_the_few_that_wait_for_a_key_of_the_store_are_apart() -> None:
    key = stack(("work", "/app/train.py", 28), MAIN, code="store.get(name)")
    # Rank 0 has a part of its own, and calls all_reduce at another line
    said = judged(at_line(0, 21), at_line(1, 30), still(2, key), at_line(3, 30))
    assert causes(said) == [("not_entered", [2])], said.summary
    assert "waits for a key in the store, which no rank has set" in said.summary
    # The many wait for a key that the one has not set
    said = judged(at_line(0, 30), *[still(rank, key) for rank in (1, 2, 3)])
    assert causes(said) == [("order", [0])], said.summary
