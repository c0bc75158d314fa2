"""Children of the first rank that have a number and are not connected to anything yet."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hangdoctor.readers.discover import Found, Job
from hangdoctor.readers.starting_ranks import with_children
from tests.support.stage import wait_until

pytestmark = pytest.mark.timeout(60)


def ranks_beside(*environs: dict[str, str], rank: int = 0, world: int = 3) -> list[int]:
    """The ranks that are found where this process is one, and started others with these variables."""
    plain = {k: v for k, v in os.environ.items() if not k.endswith(("RANK", "WORLD_SIZE"))}
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    first = Found(os.getpid(), 1, rank, world, 0, 0, "j", time.time(), "me", sleep, {})
    started = [subprocess.Popen(sleep, env=plain | environ) for environ in environs]
    try:
        wait_until(lambda: all(b"(600)" in _line(one.pid) for one in started), "all were started")
        found = with_children(Job("j", [first], 1.0)).ranks
        assert {f.pid for f in found[1:]} <= {one.pid for one in started}
        return [f.rank for f in found]
    finally:
        for one in started:
            one.kill()
            one.wait()


def _line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def numbered(local: int, world: int = 3, **more: str) -> dict[str, str]:
    return {"LOCAL_RANK": str(local), "WORLD_SIZE": str(world), **more}


def test_children_with_a_local_rank_are_ranks_before_they_connect() -> None:
    assert ranks_beside(numbered(2), numbered(1)) == [0, 1, 2]


@pytest.mark.parametrize(
    "environ",
    [{}, numbered(0), numbered(1, world=4), numbered(3), numbered(1, RANK="1")],
)
def test_other_children_are_none(environ: dict[str, str]) -> None:
    assert ranks_beside(environ) == [0]


def test_two_of_one_number_and_children_of_another_rank_are_none() -> None:
    assert ranks_beside(numbered(1), numbered(1)) == [0]
    assert ranks_beside(numbered(2), rank=1) == [1]
