"""Why an actor of Ray's ended: by itself, or with the process or the node that it depends on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed, named

DIED = """\
ray.exceptions.{error}: The actor died unexpectedly before finishing this task.
        class_name: Learner
        actor_id: 28507c6373
        pid: 1592
        namespace: b9b0f765
        ip: 10.7.0.7
{reason}
"""
OWNER = (
    "The actor is dead because its owner has died. Owner Id: 01ff Owner Ip address: 10.7.0.1 "
    "Owner worker exit type: SYSTEM_ERROR Worker exit detail: Owner's {} has crashed."
)
ITSELF = "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits."


@pytest.mark.parametrize("error", ["ActorDiedError", "RayActorError"])
def test_the_node_that_an_actor_was_lost_with(tmp_path: Path, error: str) -> None:
    lost = DIED.format(error=error, reason=OWNER.format("node"))
    found = diagnosed(tmp_path, lost)
    assert named(found) == [("unreachable", [])] and found.causes[0].nodes == ["10.7.0.1"]
    own = DIED.format(error=error, reason="The actor died because its node has died. Node Id: 0cc6")
    found = diagnosed(tmp_path, own)
    assert named(found) == [("unreachable", [])] and found.causes[0].nodes == ["10.7.0.7"]


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        (OWNER.format("worker process"), "the job's driver, had ended on 10.7.0.1"),
        ("The actor is dead because it was killed by `ray.kill`.", "ray.kill"),
    ],
)
def test_an_actor_that_another_ended_is_not_blamed(tmp_path: Path, reason: str, says: str) -> None:
    found = diagnosed(tmp_path, DIED.format(error="ActorDiedError", reason=reason))
    assert (found.status, found.causes) == ("unknown", []) and says in found.summary


def test_an_actor_whose_own_process_died(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, DIED.format(error="ActorDiedError", reason=ITSELF))
    assert named(found) == [("dead", [])] and "Process 1592 on 10.7.0.7" in found.summary


def test_a_real_error_beside_a_lost_actor(tmp_path: Path) -> None:
    lost = DIED.format(error="ActorDiedError", reason=OWNER.format("worker process"))
    raised = 'Traceback (most recent call last):\n  File "fit.py", line 4, in step\n    go()\nKeyError: 7\n'
    found = diagnosed(tmp_path, raised + lost)
    assert named(found) == [("error", [])] and "KeyError" in found.summary


def test_an_actors_end_that_a_logger_printed(tmp_path: Path) -> None:
    head = "2026-01-01 10:00:00 ERROR worker.py:400 -- Unhandled error: "
    reason = "The actor died because its node has died. Node Id: 0cc6"
    text = DIED.format(error="", reason=reason).replace("ray.exceptions.: ", head)
    found = diagnosed(tmp_path, text)
    assert named(found) == [("unreachable", [])] and found.causes[0].nodes == ["10.7.0.7"]


def test_a_node_that_ray_holds_for_dead(tmp_path: Path) -> None:
    text = "(raylet, ip=10.7.0.3) node_manager.cc:1045: Exiting because this node manager has mistakenly been marked as dead by the GCS\n"
    found = diagnosed(tmp_path, text)
    assert named(found) == [("unreachable", [])] and found.causes[0].nodes == ["10.7.0.3"]
