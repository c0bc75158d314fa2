"""Processes that share a `multiprocessing.Barrier`: who has not come to it."""

from __future__ import annotations

from hangdoctor.model.capture import RankCapture
from tests.support.captures import WAIT, causes, judged, stack, still

THREADING = "/usr/lib/python3.11/threading.py"
SYNCHRONIZE = "/usr/lib/python3.11/multiprocessing/synchronize.py"
SLEEP = stack(("worker", "/app/train.py", 44), code="time.sleep(0.5)")


def in_barrier(rank: int, innermost: str = SYNCHRONIZE) -> RankCapture:
    wait = stack(
        ("Condition.wait", innermost, 261),
        ("Condition.wait_for", innermost, 313),
        ("Barrier._wait", THREADING, 725),
        ("Barrier.wait", THREADING, 690),
        ("worker", "/app/train.py", 32),
    )
    return still(rank, wait, ppid=1000)


def test_the_one_that_has_not_come_is_named() -> None:
    said = judged(*map(in_barrier, (0, 1, 2)), still(3, SLEEP))
    assert (said.status, causes(said)) == ("hang", [("not_entered", [3])])
    assert "never reached Barrier.wait in worker (train.py:32)" in said.summary
    assert "worker (train.py:44)" in said.summary
    # Beside others in a collective, too
    said = judged(still(0, WAIT), *map(in_barrier, (1, 2)), still(3, SLEEP))
    assert causes(said) == [("not_entered", [3])], said.summary


def test_who_may_be_no_party_is_not_accused_of_a_barrier() -> None:
    parent = still(3, SLEEP)
    parent.pid = 1000
    several = [*map(in_barrier, (0, 1)), still(2, SLEEP), still(3, SLEEP)]
    of_threads = [*(in_barrier(rank, THREADING) for rank in (0, 1, 2)), still(3, SLEEP)]
    for ranks in ([*map(in_barrier, (0, 1, 2)), parent], several, of_threads):
        assert "Barrier.wait" not in judged(*ranks).summary
    # One process was not captured: it may be the one
    assert "Barrier.wait" not in judged(*map(in_barrier, (0, 1)), still(3, SLEEP)).summary
