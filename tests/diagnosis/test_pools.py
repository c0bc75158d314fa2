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


CONNECTION = "/usr/lib/python3.11/multiprocessing/connection.py"
OWN_PIPE = stack(
    ("Connection._recv", CONNECTION, 378), ("Connection.recv", CONNECTION, 249), ("RemoteEnv.step", "/app/envs.py", 72), MAIN
)  # fmt: skip
ENV = stack(("Connection._recv", CONNECTION, 378), ("env_server", "/app/envs.py", 40))


def test_the_answer_of_a_child_by_a_pipe_of_its_own_is_no_data_loader() -> None:
    """As of an actor's environment, which goes on without a reply after an error."""
    asks = still(3, OWN_PIPE, children=[worker(71, ENV)])
    said = judged(*[still(rank, WAIT) for rank in (0, 1, 2)], asks)
    assert causes(said) == [("not_entered", [3])], said.summary
    assert "RemoteEnv.step (envs.py:72)" in said.summary and "data loader" not in said.summary


def test_one_that_says_that_it_has_data_is() -> None:
    frames = [frame for frame in OWN_PIPE if frame.name != "RemoteEnv.step"]
    frames.insert(2, Frame("RemoteShards.next_batch", "/app/data.py", 72))
    asks = still(3, frames, children=[worker(71, ENV)])
    assert causes(judged(*[still(rank, WAIT) for rank in (0, 1, 2)], asks)) == [("data_wait", [3])]
