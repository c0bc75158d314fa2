"""Call tracing in a real 8-rank gloo job: switched on while it runs, read while ranks hang, are stopped or are dead."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.cli.run import STARTUP
from hangdoctor.diagnosis.call_alignment import open_calls
from hangdoctor.diagnosis.calls import main_tid, thread_events
from hangdoctor.model.calls import CallTrace
from hangdoctor.readers.blackbox import find_boxes
from hangdoctor.readers.calls import calls_path, last_calls
from hangdoctor.train.faults import outside
from tests.support.stage import Stage, hangdoctor, wait_until

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]
BOXES = "boxes"
ROOT = Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def traceable(folder: Path) -> Iterator[Stage]:
    """A job with the probe, which was never traced."""
    path = os.pathsep.join([str(STARTUP), str(ROOT)])
    environ = {"HANGDOCTOR_DIR": str(folder / BOXES), "PYTHONPATH": path}
    with Stage(folder, environ=environ) as stage:
        stage.wait_ready()
        assert {row["state"] for row in status(stage)} == {"never traced"}
        assert "never traced" in control(stage, "tail", "--rank", "2", code=2)
        yield stage


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One job for all tests that leave it whole. Each switches tracing to what it needs, whatever was before."""
    with traceable(tmp_path_factory.mktemp("traced")) as stage:
        yield stage


def trace_of(stage: Stage, rank: int) -> CallTrace:
    [box] = [b for b in find_boxes(stage.folder / BOXES) if b.rank == rank and b.status != "stale"]
    trace = last_calls(calls_path(box.path), 200)
    assert trace is not None, f"rank {rank} was never traced"
    return trace


def inside(stage: Stage, rank: int) -> list[str]:
    """The followed functions that the rank's main thread is in, outermost first."""
    trace = trace_of(stage, rank)
    return [
        trace.functions[e.function].name for e in open_calls(thread_events(trace, main_tid(trace)))
    ]


def control(stage: Stage, *arguments: str, code: int = 0) -> str:
    done = hangdoctor(
        "trace", *arguments, "--folder", str(stage.folder / BOXES), cwd=stage.folder, code=code
    )
    return done.stdout + done.stderr


def status(stage: Stage) -> list[dict[str, Any]]:
    done = hangdoctor(
        "trace", "status", "--json", "--folder", str(stage.folder / BOXES), cwd=stage.folder
    )
    return list(json.loads(done.stdout))


def test_switched_on_and_off_while_the_job_runs(stage: Stage) -> None:
    stage.play("train", moving=range(8))
    said = control(
        stage,
        "start",
        "--follow",
        "stage,torch.distributed",
        "--ignore",
        "torch.distributed.c10d_logger",
        "--wait",
        "60",
    )
    assert "ranks 0-7: tracing" in said
    before = {row["rank"]: row["events"] for row in status(stage)}
    wait_until(
        lambda: all(r["events"] > before[r["rank"]] + 100 for r in status(stage)),
        "calls of all ranks are written",
    )
    tail = control(stage, "tail", "--rank", "2", "-n", "60", "--no-wait")
    assert (
        "> step (jobs/stage.py:" in tail
        and "all_reduce (distributed/distributed_c10d.py" in tail
        and "wrapper" not in tail
    )

    # Stopped, a rank is read all the same, and named as late by the switch.
    with outside.stopped(stage.pid(5)):
        wait_until(
            lambda: {r["process"] for r in status(stage) if r["rank"] == 5} == {"live"},
            "the stopped rank is listed",
        )
        first, again = trace_of(stage, 5), trace_of(stage, 5)
        assert len(first.events) > 100 and first.events == again.events
        said = control(stage, "stop", "--wait", "3")
        assert "rank 5: no answer yet" in said and "ranks 0-4,6-7: stopped" in said
    wait_until(
        lambda: {row["state"] for row in status(stage)} == {"stopped"}, "all ranks stopped tracing"
    )
    (stage.folder / f"stop.{stage.n}").touch()
    stage.finish()


def test_a_data_loaders_workers_write_nothing(stage: Stage) -> None:
    assert "ranks 0-3: tracing" in control(
        stage, "start", "--follow", "stage", "--ranks", "0-3", "--wait", "60"
    )
    assert {r["rank"] for r in status(stage) if r["state"] == "tracing"} == {0, 1, 2, 3}
    stage.play("load_worker_stuck", 1)
    assert stage.children(1), "the loader has a worker"
    names = {f.name for f in trace_of(stage, 1).functions}
    assert (
        "load_worker_stuck" in names
        and "StuckDataset.__getitem__" not in names
        and "open_fifo" not in names
    )
    stage.release(1)


def test_a_rank_that_holds_the_interpreters_lock_is_read(stage: Stage) -> None:
    assert "ranks 0-7: tracing" in control(stage, "start", "--follow", "stage", "--wait", "60")
    stage.play("gil_held", 2)
    assert inside(stage, 2)[-1] == "gil_held" and inside(stage, 6)[-1] == "step"
    said = control(stage, "tail", "--rank", "2", "--no-wait")
    assert "> gil_held (jobs/stage.py:" in said.splitlines()[-1]
    stage.release(2)


def test_a_rank_hangs_and_dies_and_its_last_calls_are_right(stage: Stage) -> None:
    """The last test of this job: it loses a rank."""
    assert "ranks 0-7: tracing" in control(stage, "start", "--follow", "stage", "--wait", "60")
    hangs(stage)
    dies(stage)


def hangs(stage: Stage) -> None:
    """Rank 3 in a checkpoint that it does not leave, as a dump and its bundle show it."""
    stage.play("save_checkpoint,sleep", "3")
    bundle = stage.folder / "bundle"
    args = ("dump", "--local", "--job", stage.key, "--bundle", str(bundle), "--json", "-")
    env = {**os.environ, "HANGDOCTOR_DIR": str(stage.folder / BOXES)}
    verdict = json.loads(hangdoctor(*args, cwd=stage.folder, env=env).stdout)
    assert verdict["causes"][0]["ranks"] == [3]
    calls = verdict["calls"]
    assert calls["culprit"]["rank"] == 3 and calls["peer"]["rank"] in (2, 4)
    assert calls["culprit"]["calls"][0].startswith("called save_checkpoint (jobs/stage.py:")
    assert calls["peer"]["calls"][0].startswith("called step (jobs/stage.py:")
    assert calls["culprit"]["inside"][-1].startswith("save_checkpoint") and calls["common"] > 4
    told = [e for e in verdict["causes"][0]["evidence"] if e["source"] == "trace"]
    assert len(told) == 1 and "called save_checkpoint" in told[0]["says"]
    text = hangdoctor("diagnose", str(bundle), cwd=stage.folder).stdout
    shown = text[text.index("last Python calls") :].split("\n\n")[0].splitlines()
    assert 4 <= len(shown) <= 8 and any(
        "still in" in line and "save_checkpoint" in line for line in shown
    )


def dies(stage: Stage) -> None:
    """The same rank once it is killed, as its trace shows it."""
    stage.processes[3].kill()
    stage.processes[3].wait(timeout=20)
    assert inside(stage, 3)[-2:] == ["play", "save_checkpoint"]
    tail = control(stage, "tail", "--rank", "3", "-n", "3")
    assert "> save_checkpoint (jobs/stage.py:" in tail and "the process has ended" in tail
    [row] = [r for r in status(stage) if r["rank"] == 3]
    assert row["process"] == "dead" and row["events"] > 4 and row["last_call_s"] < time.monotonic()
