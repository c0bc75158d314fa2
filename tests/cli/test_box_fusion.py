"""A dump of a job that carries black boxes, or a worker server: operations make the verdict exact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import hangdoctor.probe
from hangdoctor.train.faults import outside
from tests.support.stage import Stage, interrupt

pytestmark = pytest.mark.torch
STARTUP = Path(hangdoctor.probe.__file__).parent / "startup"
ROOT = Path(hangdoctor.probe.__file__).parents[2]


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("probed")
    environ = {"PYTHONPATH": f"{STARTUP}:{ROOT}", "HANGDOCTOR_DIR": str(folder / "boxes")}
    with Stage(folder / "job", world=4, environ=environ) as job:
        yield job.wait_ready()


def test_a_rank_that_never_enters_is_named_with_the_operation_and_its_number(probed: Stage) -> None:
    probed.play("sleep", 2)
    verdict = probed.dump()
    probed.release(2)
    [cause] = verdict["causes"]
    assert (cause["kind"], cause["ranks"]) == ("not_entered", [2]) and cause["confidence"] >= 0.95
    assert cause["where"]["op"] == "all_reduce" and cause["where"]["seq"] == 2
    assert cause["where"]["group_ranks"] == [0, 1, 2, 3] and "sleep" in cause["where"]["frame"]
    assert {e["source"] for e in cause["evidence"]} >= {"ops", "stack", "proc"}
    assert "pid" in cause["summary"] and "; it is sleeping in " in cause["summary"]
    assert not any("hangdoctor/probe" in f["file"] for g in verdict["stacks"] for f in g["frames"])


def test_a_stopped_rank_keeps_its_kind_and_gains_the_operation(probed: Stage) -> None:
    probed.play("sleep", 1)
    with outside.stopped(probed.pid(1)):
        verdict = probed.dump()
    probed.release(1)
    assert [(c["kind"], c["ranks"]) for c in verdict["causes"]] == [("stopped", [1])]
    assert verdict["causes"][0]["where"]["op"] == "all_reduce"


@pytest.mark.full
def test_a_second_pair_of_samples_separates_slow_from_stuck_where_waits_are_usual(
    probed: Stage,
) -> None:
    for scenario, status, kind in (
        ("slow_steps", "slow", "slow"),
        ("slow_then_stuck", "hang", "not_entered"),
    ):
        probed.play(scenario, 2, moving=range(4))
        verdict = probed.dump()
        (probed.folder / f"stop.{probed.n}").touch()
        interrupt(probed.pid(2)) if kind == "not_entered" else None
        probed.finish()
        assert verdict["status"] == status, verdict["summary"]
        assert [(c["kind"], c["ranks"]) for c in verdict["causes"]] == [(kind, [2])]
        assert (
            "may only be slow" not in verdict["summary"]
            and verdict["causes"][0]["confidence"] > 0.5
        )


@pytest.mark.timeout(300)
def test_a_settle_that_is_given_is_kept_to_and_its_doubt_is_printed(probed: Stage) -> None:
    for _ in range(3):  # a dump that starts late finds them waiting for longer than is usual
        probed.play("slow_then_stuck", 2, moving=range(4))
        verdict = probed.dump("--settle", "0.2")
        (probed.folder / f"stop.{probed.n}").touch()
        interrupt(probed.pid(2))
        probed.finish()
        [cause] = verdict["causes"]
        if "may only be slow" in verdict["summary"]:
            break
    assert (
        cause["ranks"] == [2]
        and cause["alternatives"][0]["kind"] == "slow"
        and "--settle 7" in cause["advice"]
    )


def test_what_stacks_cannot_tell_operations_do(probed: Stage) -> None:
    """All ranks stand on one line of the program: only the group that one of them called it on differs."""
    probed.play("wrong_group", 3)
    verdict = probed.dump()
    assert verdict["causes"][0]["ranks"] == [3], verdict["summary"]
    assert verdict["causes"][0]["kind"] in ("mismatch", "order")
