"""Who looks again and again for what a dead rank was to bring is no second cause; who is stuck is."""

from __future__ import annotations

import pytest

from hangdoctor.model.capture import Frame, RankCapture
from tests.support.captures import (
    LOAD,
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


@pytest.mark.parametrize(
    ("code", "counts", "found"),
    [
        ("time.sleep(0.5)", "while", [("dead", [3])]),
        ("time.sleep(600)", "", [("dead", [3]), ("not_entered", [0])]),
        ("lock.acquire()", "while", [("dead", [3]), ("not_entered", [0])]),
    ],
)
def test_a_loop_that_sleeps_waits_for_the_dead_one(
    code: str, counts: str, found: list[tuple[str, list[int]]]
) -> None:
    inner = Frame("merge", "/app/corpus.py", 47, code)
    inner.counts = counts
    path = [inner, *stack(("main", "/app/corpus.py", 60))]
    looks = captured(0, [sample(t, thread(path, switches=n)) for t, n in ((0.0, 5), (1.0, 7))])
    dead = captured(3, [], gone=True, exit_code=-9)
    assert causes(judged(looks, still(1, WAIT), still(2, WAIT), dead)) == found


LATER = (
    ("reconnect", "/app/net.py", 9),
    ("step", "/app/train.py", 36),
    MAIN,
)  # than that of the others


def retrying(rank: int, caught: str) -> RankCapture:
    frames = stack(*LATER)
    frames[0].catches = caught
    return captured(rank, [sample(t, thread(frames, switches=n)) for t, n in ((0.0, 5), (1.0, 7))])


@pytest.mark.parametrize(
    ("caught", "others"),
    [
        ("OSError", [("busy", [0])]),
        ("Empty", []),
        ("TimeoutError", []),
        ("FileExistsError", []),
        ("FileNotFoundError", []),
        ("ConnectionRefusedError", []),
    ],
)
def test_who_keeps_failing_beside_a_stopped_one_is_a_second_cause(
    caught: str, others: list[tuple[str, list[int]]]
) -> None:
    """What is empty, or comes too late, may be for the stopped one to bring."""
    found = judged(retrying(0, caught), still(1, WAIT), still(2, WAIT), still(3, LOAD, "T"))
    assert causes(found) == [("stopped", [3]), *others]


def test_beside_a_dead_one_it_may_be_that_which_it_cannot_reach() -> None:
    dead = captured(3, [], gone=True, exit_code=-9)
    found = judged(retrying(0, "OSError"), still(1, WAIT), still(2, WAIT), dead)
    assert causes(found) == [("dead", [3])]


def going_on(rank: int) -> RankCapture:
    """Its loop has counted on between the samples."""
    steps = [[Frame("main", "/app/train.py", 60, values={"step": n})] for n in (5, 6)]
    threads = [thread(path, switches=5 + n) for n, path in enumerate(steps)]
    return captured(rank, [sample(float(n), one) for n, one in enumerate(threads)])


@pytest.mark.parametrize(
    ("code", "others_wait", "status"),
    [(0, False, "healthy"), (0, True, "hang"), (1, False, "hang"), (None, False, "hang")],
    ids=["it ended well", "one stands", "it failed", "how it ended is unknown"],
)
def test_who_ended_well_while_all_others_go_on_is_no_culprit(
    code: int | None, others_wait: bool, status: str
) -> None:
    ended = captured(3, [], gone=True, exit_code=code)
    third = still(2, WAIT) if others_wait else going_on(2)
    found = judged(going_on(0), going_on(1), third, ended)
    assert found.status == status, found.summary
    if status == "healthy":
        assert found.summary == (
            "No hang seen: rank 3 has ended with exit code 0, and the 3 others go on without it."
        )
    else:
        assert causes(found)[0] == ("dead", [3])
