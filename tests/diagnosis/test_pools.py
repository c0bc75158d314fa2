"""A rank that waits for a task of its multiprocessing.Pool."""

from __future__ import annotations

from hangdoctor.model.capture import Frame, Process
from tests.support.captures import MAIN, WAIT, causes, judged, sample, stack, still, thread

POOL = "/usr/lib/python3.11/multiprocessing/pool.py"
AWAITS = stack(
    ("Condition.wait", "/usr/lib/python3.11/threading.py", 320),
    ("ApplyResult.get", POOL, 768),
    ("Pool.map", POOL, 367),
    MAIN,
)
IDLE = stack(
    ("SimpleQueue.get", "/usr/lib/python3.11/multiprocessing/queues.py", 365),
    ("worker", POOL, 114),
)
AT_WORK = stack(("score", "/app/reward.py", 12), ("mapstar", POOL, 48), ("worker", POOL, 125))


def worker(pid: int, frames: list[Frame]) -> Process:
    return Process(pid, samples=[sample(0.0, thread(frames)), sample(1.0, thread(frames))])


def test_a_task_that_no_worker_has_is_lost() -> None:
    children = [worker(71, IDLE), worker(72, IDLE)]
    said = judged(*[still(rank, WAIT) for rank in (0, 1, 2)], still(3, AWAITS, children=children))
    assert causes(said) == [("not_entered", [3])], said.summary
    assert "waits for a task of its Pool, whose workers are all idle" in said.summary
    # Of one worker there is no stack
    children.append(worker(73, []))
    said = judged(*[still(rank, WAIT) for rank in (0, 1, 2)], still(3, AWAITS, children=children))
    assert "idle" not in said.summary


def test_the_worker_that_is_at_it_is_named() -> None:
    children = [worker(71, IDLE), worker(72, AT_WORK)]
    said = judged(*[still(rank, WAIT) for rank in (0, 1, 2)], still(3, AWAITS, children=children))
    assert causes(said) == [("not_entered", [3])], said.summary
    assert "its worker 72 is in score (reward.py:12)" in said.summary
