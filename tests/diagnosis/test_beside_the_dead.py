"""Who looks again and again for what a dead rank was to bring is no second cause; who is stuck is."""

from __future__ import annotations

import pytest

from hangdoctor.model.capture import Frame
from tests.support.captures import WAIT, captured, causes, judged, sample, stack, still, thread


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
