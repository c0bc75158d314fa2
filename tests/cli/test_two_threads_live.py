"""Real ranks of which two threads call collectives of one group, in another order on one rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.plain_ranks import dump, scripted
from tests.support.ports import free_port
from tests.support.stage import switches, wait_until

pytestmark = pytest.mark.torch

# Each waits until the other call is issued, by the group's own count of its operations.
PROGRAM = """
import os, sys, threading, time
import torch, torch.distributed as dist

dist.init_process_group("gloo")
rank, group = dist.get_rank(), dist.distributed_c10d._get_default_group()
began = group._get_sequence_number_for_group()


def after_the_other(first):
    while not first and group._get_sequence_number_for_group() == began:
        time.sleep(0.01)


def save():
    after_the_other(rank != 1)
    dist.barrier()


def train():
    after_the_other(rank == 1)
    open(sys.argv[1], "w").close()
    dist.all_reduce(torch.ones(1))


threading.Thread(target=save, name="writer", daemon=True).start()
train()
"""


def test_two_threads_in_collectives_at_once_are_named_and_not_the_network(tmp_path: Path) -> None:
    port = free_port()
    with scripted(tmp_path, PROGRAM, port, 3) as pids:
        seen: list[int] = []

        def rests() -> bool:
            seen[:], before = [switches(pid) for pid in pids], list(seen)
            return seen == before

        wait_until(rests, "no rank's main thread runs")
        said = dump(tmp_path, f"127.0.0.1:{port}")
    [cause] = said["causes"]
    assert (cause["kind"], cause["ranks"]) == ("order", [1]), cause["summary"]
    assert "entered all_reduce #1 (job.py:23) before barrier #1 (job.py:17)" in cause["summary"]
    assert "network" not in cause["summary"] + cause["advice"]
