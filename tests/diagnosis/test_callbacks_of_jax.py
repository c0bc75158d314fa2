"""Compiled code of JAX that calls back into the user's: the rank is where the callback's thread stands."""

from __future__ import annotations

import pytest

from hangdoctor.model.capture import Frame, RankCapture, ThreadSample
from tests.support.captures import captured, causes, judged, sample, stack, thread

JAX = "/v/site-packages/jax/_src/"
RESULT = stack(("ArrayImpl._value", f"{JAX}array.py", 623), ("main", "/app/heat.py", 68))
OFFERS = stack(
    ("Condition.wait", "/usr/lib/python3.11/threading.py", 320),
    ("Queue.put", "/usr/lib/python3.11/queue.py", 140),
    ("ProbeWriter.offer", "/app/writer.py", 33),
    ("main.<locals>.probe", "/app/heat.py", 60),
    ("_FlatCallback.__call__", f"{JAX}callback.py", 71),
)
TAKES = stack(
    ("Condition.wait", "/usr/lib/python3.11/threading.py", 320),
    ("Queue.get", "/usr/lib/python3.11/queue.py", 171),
    ("ProbeWriter._run", "/app/writer.py", 27),
)


def rank_with(rank: int, *beside: list[Frame]) -> RankCapture:
    """It wakes up now and then; `beside`: another thread, in each of the two samples."""

    def at(n: int) -> list[ThreadSample]:
        one = {"switches": 100 + 9 * n, "cpu_s": 0.0, "syscall": "futex"}
        own = thread(RESULT, **one)
        return [own, thread(beside[n % len(beside)], tid=117, name="", **one)]

    return captured(rank, [sample(2.0 * n, *at(n)) for n in range(2)])


def test_the_rank_whose_callback_does_not_return_is_named() -> None:
    said = judged(
        rank_with(0, TAKES), rank_with(1, OFFERS), rank_with(2, TAKES), rank_with(3, TAKES)
    )
    assert causes(said) == [("not_entered", [1])]
    assert "it waits to put into a full queue" in said.summary


@pytest.mark.parametrize("beside", [(OFFERS, TAKES), (TAKES, OFFERS), (TAKES,)])
def test_a_callback_that_comes_and_goes_is_none(beside: tuple[list[Frame], ...]) -> None:
    ranks = [rank_with(0, TAKES), rank_with(1, *beside), rank_with(2, TAKES), rank_with(3, TAKES)]
    assert causes(judged(*ranks)) == []
