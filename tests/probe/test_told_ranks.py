"""Ranks that a call of torch's names, where no environment does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hangdoctor.cli.diagnose import load
from hangdoctor.diagnosis import diagnose
from hangdoctor.probe import format as fmt
from hangdoctor.probe.box import BoxWriter
from tests.support.ended_jobs import environment
from tests.support.ports import free_port

ALONE = """
import sys
from datetime import timedelta
import torch.distributed as dist

where = f"tcp://127.0.0.1:{sys.argv[1]}"
dist.init_process_group("gloo", where, timedelta(seconds=2), world_size=3, rank=1)
"""
ENDED = (1 << 22) + 1  # no process has it
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK")


@pytest.mark.timeout(120)
@pytest.mark.torch
def test_who_waits_to_be_given_a_group_has_the_rank_that_it_asked_for(tmp_path: Path) -> None:
    """Its rank 0, which the rendezvous needs, never came."""
    program = tmp_path / "alone.py"
    program.write_text(ALONE)
    env = {name: value for name, value in environment(tmp_path).items() if name not in NAMES}
    command = [sys.executable, "-m", "hangdoctor", "run", "--", sys.executable, str(program)]
    ended = subprocess.run(
        [*command, str(free_port())], env=env, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1, ended.stderr
    capture = load([tmp_path / "boxes"])
    assert [rank.rank for rank in capture.ranks()] == [1] and capture.world_size == 3, ended.stderr
    found = diagnose(capture)
    assert 0 in found.causes[0].ranks and 1 not in found.causes[0].ranks, found.summary


def test_a_process_that_had_no_rank_yet_is_none_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    box = BoxWriter(tmp_path, "a-job", 1 << 20)
    box.put(fmt.H_PID, ENDED)
    capture = load([tmp_path])
    assert not capture.ranks() and f"pid {ENDED} " in capture.notes[0]
    found = diagnose(capture)
    assert (found.status, found.causes) == ("unknown", [])
