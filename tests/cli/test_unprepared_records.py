"""A job that nobody prepared: torch's own records, read from the ranks' memory, count its calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.plain_ranks import dump, scripted
from tests.support.ports import free_port
from tests.support.stage import switches, wait_until

pytestmark = pytest.mark.torch

PROGRAM = """
import sys
import torch, torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
pair = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
loss = torch.ones(4, 3)


def step(number):
    dist.all_reduce(loss)
    if rank != 2 or number != 5:
        dist.all_reduce(loss, group=pair)
    dist.barrier()


for number in range(9):
    if number == 5:
        open(sys.argv[1], "w").close()
    step(number)
"""


def test_a_call_that_one_rank_skips_is_named_with_its_line(tmp_path: Path) -> None:
    port = free_port()
    with scripted(tmp_path, PROGRAM, port, 4) as pids:
        seen: list[int] = []

        seen: list[str] = []

        def rests() -> bool:
            seen[:], before = [switches(pid) for pid in pids], list(seen)
            return seen == before

        wait_until(rests, "no rank's main thread runs")
        said = dump(tmp_path, f"127.0.0.1:{port}")
    [cause] = said["causes"]
    assert (cause["kind"], cause["ranks"]) == ("order", [2]), cause["summary"]
    assert "skipped all_reduce #6 of group 2-3 (job.py:14)" in cause["summary"]
    assert cause["confidence"] > 0.9
    assert "less +14" in cause["advice"]
