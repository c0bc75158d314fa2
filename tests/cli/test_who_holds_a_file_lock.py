"""Ranks that wait for a file lock are victims: who holds it is the cause, with what it does."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.cli.run import STARTUP
from tests.support.stage import Stage, interrupt

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", params=["stacks", "operations"])
def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp(request.param)
    environ = {"STAGE_LOCKF": "1"}
    if request.param == "operations":
        environ = {
            "HANGDOCTOR_DIR": str(folder / "boxes"),
            "PYTHONPATH": os.pathsep.join([str(STARTUP), str(ROOT)]),
        }
    with Stage(folder, world=4, environ=environ) as job:
        yield job.wait_ready()


def first(verdict: dict[str, Any]) -> dict[str, Any]:
    assert verdict["status"] == "hang"
    [cause] = verdict["causes"]
    return dict(cause)


def test_the_holder_that_waits_for_its_child_is_the_cause(stage: Stage) -> None:
    stage.play("hold_lock_and_run,wait_for_lock,wait_for_lock", "1,0,2")
    cause = first(stage.dump())
    [child] = stage.children(1)
    stage.release(1)
    assert (cause["kind"], cause["ranks"]) == ("not_entered", [1])
    holds = rf"^Rank 1 \(.*pid {stage.pid(1)}\) holds the lock on shared.lock.{stage.n} that ranks 0,2 wait for; "
    assert re.search(holds, cause["summary"]), cause["summary"]
    assert f"it waits for its child {child} (sleep 3600)" in cause["summary"]
    assert str(child) in cause["advice"]
    assert cause["confidence"] >= 0.9
    held = [e for e in cause["evidence"] if "/proc/locks" in e["says"]]
    assert [e["ranks"] for e in held] == [[0, 2]], cause["evidence"]


def test_the_holder_that_is_in_a_collective_is_the_cause(stage: Stage) -> None:
    stage.play("hold_lock_into_step,wait_for_lock,wait_for_lock", "1,0,2")
    cause = first(stage.dump())
    for rank in (0, 2):
        interrupt(stage.pid(rank))
    stage.finish()
    assert (cause["kind"], cause["ranks"]) == ("order", [1])
    assert re.search(r"^Rank 1 .* holds the lock on .* that ranks 0,2 wait for", cause["summary"])
    assert "all_reduce" in cause["summary"]
    assert re.search(r"[Rr]elease the lock before", cause["advice"]), cause["advice"]


def test_a_holder_outside_of_the_job_is_named(stage: Stage) -> None:
    lock = stage.folder / f"shared.lock.{stage.n + 1}"
    locking = fcntl.lockf if stage.environ.get("STAGE_LOCKF") else fcntl.flock
    with lock.open("w") as handle:
        locking(handle, fcntl.LOCK_EX)
        (stage.folder / f"held.{stage.n + 1}").write_text("")
        stage.play("wait_for_lock,wait_for_lock", "0,2")
        cause = first(stage.dump())
    stage.finish()
    assert re.search(
        rf"^Process {os.getpid()} \(.*\) holds the lock on {lock.name} that ranks 0,2 wait for",
        cause["summary"],
    ), cause["summary"]
    assert str(os.getpid()) in cause["advice"]
