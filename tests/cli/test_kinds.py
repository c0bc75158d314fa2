"""Every kind of cause, on a real gloo job of eight ranks that really hangs: `hangdoctor dump --local` names the culprit."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.train.faults import outside
from tests.support.stage import Stage, interrupt, switches, wait_until

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Stage(tmp_path_factory.mktemp("stage")) as job:
        yield job.wait_ready()


def named(verdict: dict[str, Any]) -> list[tuple[str, list[int]]]:
    return [(c["kind"], c["ranks"]) for c in verdict["causes"]]


def drain(path: Path) -> None:
    """Give a FIFO its reader: who was blocked in writing it goes on."""
    with path.open("rb") as f:
        f.read()


def feed(path: Path) -> None:
    with path.open("wb"):
        pass


Release = Callable[[Stage, int], None]


def by_signal(job: Stage, rank: int) -> None:
    job.release(rank)


def by_killing_children(job: Stage, rank: int) -> None:
    for child in job.children(rank):
        os.kill(child, signal.SIGKILL)
    job.finish()


def by_reading(job: Stage, rank: int) -> None:
    drain(job.folder / "fifo.checkpoint")
    job.finish()


CASES: list[tuple[str, int, str, str, Release]] = [
    ("sleep", 3, "not_entered", "sleep acts.py", by_signal),
    ("blocked_read", 0, "not_entered", "read_fifo acts.py", by_signal),
    ("lock", 7, "not_entered", "lock_twice acts.py", by_signal),
    ("infinite_loop", 5, "busy", "spin acts.py", by_signal),
    ("gil_held", 2, "interpreter_lock", "hold_gil acts.py", by_signal),
    ("fork_with_lock", 6, "interpreter_lock", "take_the_lock acts.py", by_killing_children),
    ("load_worker_stuck", 4, "data_wait", "load_worker_stuck stage.py", by_killing_children),
    ("load_in_process_stuck", 1, "data_wait", "open_fifo acts.py", by_signal),
    ("save_checkpoint", 0, "checkpoint_wait", "save_checkpoint stage.py", by_reading),
    ("uninterruptible", 3, "io_wait", "enter_state_d acts.py", by_killing_children),
]


@pytest.mark.parametrize(
    ("scenario", "rank", "kind", "place", "release"), CASES, ids=[c[0] for c in CASES]
)
def test_names_the_rank_and_the_kind(
    stage: Stage, scenario: str, rank: int, kind: str, place: str, release: Release
) -> None:
    stage.play(scenario, rank, moving=[rank] if kind == "busy" else [])
    verdict = stage.dump("--settle", "1")  # a sleeping rank is else looked at again
    release(stage, rank)
    assert verdict["status"] == "hang", verdict["summary"]
    assert named(verdict) == [(kind, [rank])], verdict["summary"]
    cause = verdict["causes"][0]
    name, file = place.split()
    function, _, line = cause["where"]["frame"].partition(" (")
    assert function.split(".")[-1] == name and f"/{file}:" in line
    assert cause["where"]["op"] == "all_reduce" and cause["where"]["group"] == "world"
    assert cause["confidence"] >= 0.7
    waiting = sorted(r for w in verdict["waits"] for r in w["ranks"])
    assert waiting == [r for r in range(8) if r != rank]


def test_a_stopped_rank_is_found_by_its_state_though_its_stack_is_innocent(stage: Stage) -> None:
    # Rank 5 waits like all others for rank 2, and is stopped while it does; then rank 2 comes and only 5 is missing.
    stage.play("sleep", 2)
    with outside.stopped(stage.pid(5)):
        both = stage.dump()
    stage.release(2)
    assert sorted(named(both)) == [("not_entered", [2]), ("stopped", [5])]
    assert both["causes"][0]["kind"] == "stopped"


def test_two_independent_faults_are_two_causes(stage: Stage) -> None:
    stage.play("sleep,load_in_process_stuck", "1,6")
    verdict = stage.dump()
    for rank in (1, 6):
        interrupt(stage.pid(rank))
    stage.finish()
    assert sorted(named(verdict)) == [("data_wait", [6]), ("not_entered", [1])]


def test_a_job_that_moves_is_healthy(stage: Stage) -> None:
    stage.play("train", moving=range(8))
    verdict = stage.dump("--settle", "3")  # on a busy machine a step takes its time
    (stage.folder / f"stop.{stage.n}").touch()
    stage.finish()
    assert (verdict["status"], verdict["causes"]) == ("healthy", []), verdict["summary"]


def test_ranks_that_wait_for_no_rank_are_no_hang_and_not_called_healthy(stage: Stage) -> None:
    # Between scenarios all ranks poll for the next one: no one is in a communication.
    verdict = stage.dump()
    assert (verdict["status"], verdict["causes"]) == ("unknown", []), verdict["summary"]
    assert "Could not tell" in verdict["summary"]


def test_a_rank_that_works_while_others_wait_is_slow_or_busy_never_a_victim(stage: Stage) -> None:
    stage.play("evaluate_long", 4, moving=[4])
    verdict = stage.dump()
    stage.release(4)
    assert named(verdict)[0][0] in ("slow", "busy") and named(verdict)[0][1] == [4]


def test_a_rank_that_writes_while_others_wait_is_slow(stage: Stage) -> None:
    stage.play("write_parts", 0, moving=[0])
    wait_until((stage.folder / "part.1").exists, "rank 0 writes its second part")
    verdict = stage.dump("--settle", "3")  # on a busy machine a part takes its time
    stage.release(0)
    assert (verdict["status"], named(verdict)) == ("slow", [("slow", [0])]), verdict["summary"]
    said = [e["says"] for e in verdict["causes"][0]["evidence"] if e["source"] == "proc"]
    assert any(words.startswith("wrote ") for words in said), said


def test_a_rank_ahead_in_a_later_collective_has_skipped_one(stage: Stage) -> None:
    stage.play("skipped_operation", 6)
    verdict = stage.dump()
    # By torch's own records: its next call has the number of the one that the others are in.
    assert named(verdict) in ([("order", [6])], [("mismatch", [6])]), verdict["summary"]


def test_a_group_that_stacks_do_not_show_is_not_called_the_networks_fault(tmp_path: Path) -> None:
    """One rank calls the same line on another group: by their stacks all of them are in one
    operation.
    """
    with Stage(tmp_path / "job", world=3) as job:
        job.wait_ready().play("wrong_group", 1)
        verdict = job.dump()
    assert (verdict["status"], verdict["causes"]) == ("unknown", []), verdict["summary"]
    assert "whose line takes its group from a variable" in verdict["summary"]
    assert "Black boxes (hangdoctor run) show it" in verdict["summary"]


def test_a_rank_killed_while_the_others_wait_is_named_with_its_signal(tmp_path: Path) -> None:
    with Stage(tmp_path / "job", world=3) as job:
        job.wait_ready().play("store_wait", 1)
        os.kill(job.pid(2), signal.SIGKILL)
        wait_until(lambda: "Z (zombie)" in switches(job.pid(2)), "rank 2 is a zombie")
        verdict = job.dump()
        assert named(verdict) == [("dead", [2])]
        assert "SIGKILL" in verdict["summary"]


def test_start_stall_names_who_has_not_joined(tmp_path: Path) -> None:
    with Stage(tmp_path / "late", world=4, late=2) as job:
        wait_until(lambda: job.marks("at", 0) == set(range(4)), "all ranks started")
        wait_until(
            lambda: "init_process_group" in str(job.dump("--settle", "0")["stacks"]),
            "others in rendezvous",
        )
        for rank in range(1, 4):
            job.wait_rest(rank)
        verdict = job.dump()
        assert named(verdict) == [("start_stall", [2])], verdict["summary"]
        assert verdict["causes"][0]["where"]["frame"].startswith("sleep (")
        os.kill(job.pid(2), signal.SIGKILL)
        job.processes[2].wait(timeout=10)  # reaped: nothing is left of it
        verdict = job.dump()
        assert named(verdict)[0][1] == [2] and named(verdict)[0][0] in ("start_stall", "dead")


def test_end_stall_names_who_is_left(tmp_path: Path) -> None:
    with Stage(tmp_path / "end", world=4) as job:
        job.wait_ready()
        job.n = 1
        (job.folder / "cmd.1").write_text('{"scenario": "leave", "rank": 2}')
        wait_until(
            lambda: all("Z (zombie)" in switches(job.pid(r)) for r in (0, 1, 3)),
            "three ranks have left",
        )
        job.wait_rest(2)
        verdict = job.dump()
        assert named(verdict) == [("end_stall", [2])], verdict["summary"]
