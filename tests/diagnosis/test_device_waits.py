"""Ranks that wait for their GPU in a thread that spins, as torch, JAX and CuPy do on an H200."""

from __future__ import annotations

from typing import Any

import pytest

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import JobCapture, NodeCapture, RankCapture
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.model.operations import Group, Operation, RankOps
from tests.support.captures import MAIN, captured, causes, sample, stack, thread
from tests.support.fake_gpus import one

STEP = ("step", "/app/train.py", 31)
ITEM = "loss.item()"


def spinning(code: str, held: tuple[int, ...] = (5, 5, 5), world: int = 1) -> RankCapture:
    """A rank whose thread used a whole processor at one line, with these checksums of its variables."""
    frames = stack(STEP, MAIN, code=code)
    samples = [
        sample(4.0 * n, thread(frames, state="R", held=h, cpu_s=4.0 * n), state="R")
        for n, h in enumerate(held)
    ]
    return captured(0, samples, world_size=world)


def job(rank: RankCapture, busy: int = 100, **gpu: Any) -> Diagnosis:
    node = NodeCapture("n1", ranks=[rank], gpus=[one(0, **({"pids": [9], "busy": busy} | gpu))])
    return diagnose(JobCapture("j", [node], [], rank.world_size, taken=1.0))


@pytest.mark.parametrize(
    "code", [ITEM, "torch.cuda.synchronize()", "print(losses[keep].shape)", "n = int(total > 0)"]
)
def test_the_only_rank_waits_for_its_own_gpu(code: str) -> None:
    found = job(spinning(code))
    assert (found.status, causes(found)) == ("hang", [("device_wait", [0])])
    assert "has been waiting for its own GPU for 8 s" in found.summary
    assert "it is in step (train.py:31)" in found.summary
    assert [a.kind for a in found.causes[0].alternatives] == ["slow"]


def test_one_whose_variables_change_goes_on() -> None:
    assert job(spinning(ITEM, held=(5, 6, 6))).status != "hang"


def test_one_of_which_no_variable_is_known_is_not_named() -> None:
    assert job(spinning(ITEM, held=(0, 0, 0))).status == "unknown"


def test_an_idle_gpu_is_not_what_it_computes_for() -> None:
    assert job(spinning(ITEM), busy=0).status == "unknown"


def test_a_line_that_needs_no_value_of_a_gpu_computes() -> None:
    assert job(spinning("order = plan(rows)")).status == "unknown"


def test_in_a_larger_job_others_may_hold_it_up() -> None:
    found = job(spinning(ITEM, world=2))
    assert ("device_wait", [0]) not in causes(found)


def test_the_only_member_of_a_group_waits_for_no_other_rank() -> None:
    pending = Operation("g", 2, "all_reduce", entered_s=1.0)
    done = Operation("g", 1, "all_reduce", "done", entered_s=0.5, left_s=0.6)
    ops = RankOps(
        0, 1, "flight_recorder", [Group("g", [0], "dp")], [done, pending], runs_ahead=True
    )
    rank = spinning("torch.cuda.synchronize()")
    rank.ops = rank.ops_before = ops
    found = job(rank)
    assert causes(found) == [("device_wait", [0])]
    assert "waits for its own GPU: it is the only member of all_reduce #2" in found.summary
    assert "network" not in found.summary
