"""The world size that no variable of a process shows, by torch's own frames in the set-up."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hangdoctor.model.capture import Frame, ProcessSample, RankCapture, ThreadSample
from hangdoctor.readers.group_lists import SET_UP
from hangdoctor.readers.told_world import take_told_world
from tests.support.stage import free_port, hangdoctor, wait_until

JOB = Path(__file__).parents[1] / "support" / "jobs" / "one_too_few.py"


def rank(number: int, told: tuple[int, int] | None, world: int = 2) -> RankCapture:
    """A rank whose set-up holds this rank and world size."""
    frame = Frame("init_process_group", "/v/torch/distributed/distributed_c10d.py", 1892)
    if told is not None:
        frame.lists = {SET_UP: [*told]}
    sample = ProcessSample(at_s=1.0, threads=[ThreadSample(7, "MainThread", frames=[frame])])
    return RankCapture(pid=70 + number, rank=number, world_size=world, samples=[sample])


@pytest.mark.parametrize(
    ("told", "sizes"),
    [
        ([(0, 3), (1, 3)], [3, 3]),
        ([(0, 3), None], [3, 3]),
        ([(0, 3), (1, 4)], [2, 2]),
        ([(0, 3), (2, 3)], [2, 2]),
        ([(0, 2), (1, 2)], [2, 2]),
        ([(0, 1), (0, 1)], [2, 2]),
        ([None, None], [2, 2]),
    ],
    ids=[
        "both were told",
        "one of them",
        "they disagree",
        "another number than it has",
        "it is known",
        "smaller groups of their own",
        "nothing is told",
    ],
)
def test_all_that_tell_it_have_to_agree(
    told: list[tuple[int, int] | None], sizes: list[int]
) -> None:
    ranks = [rank(number, one) for number, one in enumerate(told)]
    take_told_world(ranks)
    assert [r.world_size for r in ranks] == sizes


@pytest.fixture
def job(tmp_path: Path) -> Iterator[str]:
    """What the job is called."""
    environ = os.environ | {"OMP_NUM_THREADS": "1"}
    words = [sys.executable, str(JOB), str(tmp_path), str(free_port())]
    process = subprocess.Popen(words, env=environ, start_new_session=True)
    yield f"parent:{process.pid}"
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=20)


@pytest.mark.torch
@pytest.mark.timeout(280)
def test_a_rank_that_nobody_started_is_missed(job: str, tmp_path: Path) -> None:
    wait_until(
        lambda: (tmp_path / "at.0").exists() and (tmp_path / "at.1").exists(), "both ranks", 200
    )
    found: dict[str, Any] = {}

    def both_wait() -> bool:
        words = ("dump", "--local", "--job", job, "--json", "-", "--no-bundle")
        done = hangdoctor(*words, cwd=tmp_path, code=None)
        if not done.stdout.startswith("{"):
            return False  # they have not met yet
        found.update(json.loads(done.stdout))
        return all("init_process_group" in line["place"] for line in found["ranks"])

    wait_until(both_wait, "both wait for the third", 200)
    assert found["job"]["world_size"] == 3
    assert [(c["kind"], c["ranks"]) for c in found["causes"]] == [("start_stall", [2])]
