"""Ranks whose main thread serves a probe, while a thread beside it trains."""

from __future__ import annotations

from hangdoctor.model.capture import Frame, RankCapture
from tests.support.captures import C10D, captured, causes, judged, sample, stack, thread

THREADING = "/usr/lib/python3.11/threading.py"
SERVES = stack(
    ("_PollLikeSelector.select", "/usr/lib/python3.11/selectors.py", 415),
    ("BaseServer.serve_forever", "/usr/lib/python3.11/socketserver.py", 233),
    ("main", "/app/train.py", 104),
)
BEGINS = (("Thread.run", THREADING, 982), ("Thread._bootstrap", THREADING, 1002))


def runs(*inner: tuple[str, str, int]) -> list[Frame]:
    """A thread whose own function is `train`."""
    return stack(*inner, ("train", "/app/train.py", 70), *BEGINS)


def rank(number: int, trains: list[Frame] | None, call: str = "", **main: str) -> RankCapture:
    serves = thread(SERVES, **({"syscall": "poll(3 -> socket:[7])"} | main))
    beside = [thread(trains, tid=21, name="trainer", syscall=call)] if trains else []
    return captured(number, [sample(at, serves, *beside) for at in (0.0, 1.0)])


REDUCES = runs(("all_reduce", C10D, 9))


def test_who_has_lost_the_thread_that_trains_is_named() -> None:
    said = judged(*[rank(n, REDUCES) for n in (0, 1, 3)], rank(2, None))
    assert causes(said) == [("not_entered", [2])], said.summary
    assert "its thread 'trainer' is gone" in said.summary
    assert said.ranks[0].place == "all_reduce in train (app/train.py:70)"
    busy = {
        "syscall": "recvfrom(3 -> socket:[7])"
    }  # no rest: all main threads are stuck themselves
    said = judged(*[rank(n, REDUCES, **busy) for n in (0, 1, 3)], rank(2, None, **busy))
    assert causes(said) == [], said.summary


def test_a_thread_that_is_elsewhere_shows_where_its_rank_is() -> None:
    reads = runs(("read_shard", "/app/data.py", 40))
    said = judged(*[rank(n, REDUCES) for n in (0, 1, 3)], rank(2, reads))
    assert causes(said) == [("not_entered", [2])], said.summary
    assert "read_shard (data.py:40)" in said.summary


def test_one_that_sleeps_between_its_rounds_is_not_late() -> None:
    later = rank(2, runs(), call="clock_nanosleep")
    said = judged(*[rank(n, REDUCES) for n in (0, 1, 3)], later)
    assert causes(said) == [], said.summary


def test_who_sends_to_listeners_has_no_such_thread_rightly() -> None:
    listens = runs(("broadcast", C10D, 9))
    said = judged(rank(0, None), *[rank(n, listens) for n in (1, 2, 3)])
    assert causes(said) == [], said.summary
