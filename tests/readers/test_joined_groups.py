"""The threads of a real rank show that it has joined a group, and who serves the store."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hangdoctor.readers import joined_groups
from tests.support.stage import wait_until

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]

RANK = """
import sys, torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, 1, True)
print("store", flush=True)
sys.stdin.readline()
dist.init_process_group("gloo", store=store, rank=0, world_size=1)
print("group", flush=True)
sys.stdin.read()
"""


def test_a_rank_serves_the_store_before_it_has_joined() -> None:
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", RANK]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "store\n"
        # A thread takes its name itself, a moment after it was started.
        wait_until(lambda: joined_groups.serves_store(process.pid), "the store's thread has a name")
        assert not joined_groups.has_joined(process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "group\n"
        wait_until(lambda: joined_groups.has_joined(process.pid), "the group's thread has a name")
        process.stdin.close()
        assert process.wait(timeout=30) == 0
    assert not joined_groups.has_joined(process.pid)
