"""A learner that waits for what its actors put into a queue, and the actor that puts nothing."""

from __future__ import annotations

from hangdoctor.model.capture import Process
from tests.support.captures import MAIN, WAIT, causes, judged, stack, still

PYTHON = "/usr/lib/python3.11/"
GET = (
    ("_recv", PYTHON + "multiprocessing/connection.py", 378),
    ("get", PYTHON + "multiprocessing/queues.py", 103),
)
LEARN = stack(*GET, ("learn", "/app/train.py", 73), MAIN)
ASK = stack(("ask", "/app/train.py", 28), ("act", "/app/train.py", 60), MAIN)


def test_the_actor_is_named_and_not_the_learner_that_waits_for_it() -> None:
    said = judged(still(0, LEARN), still(1, WAIT), still(2, ASK), still(3, WAIT))
    assert causes(said) == [("not_entered", [2])], said.summary


def test_a_queue_that_nothing_else_explains_is_named() -> None:
    said = judged(still(0, LEARN), *(still(rank, WAIT) for rank in (1, 2, 3)))
    assert [ranks for _, ranks in causes(said)] == [[0]]


def test_a_queue_that_its_own_child_fills_is_its_own() -> None:
    child = Process(pid=900, argv=["python", "loads.py"])
    own = still(0, LEARN, children=[child])
    said = judged(own, still(1, WAIT), still(2, ASK), still(3, WAIT))
    assert sorted(rank for _, ranks in causes(said) for rank in ranks) == [0, 2]
