"""Python's loggers put a level where journald puts the host."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.read_logs import diagnosed

LIMIT = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 8000ms for recv operation to complete"


def logged(second: int, host: str, says: str) -> str:
    return f"2026-11-27 16:16:{second:02d},513 {host} train: {says}\n"


@pytest.mark.parametrize("level", ["INFO", "WARNING", "debug", "Error"])
def test_a_level_behind_the_stamp_is_no_node(tmp_path: Path, level: str) -> None:
    lines = (logged(n, level, f"rank {rank} at step {n}") for n in range(20) for rank in (0, 1))
    found = diagnosed(tmp_path, "".join(lines) + f"[rank0]: {LIMIT}\n")
    assert found.job is None or level not in str(found.job)
    assert all(not cause.nodes for cause in found.causes), found.summary
    assert f"({level}" not in found.summary


def test_a_host_there_is_one(tmp_path: Path) -> None:
    lines = (logged(n, "gpu-17", f"rank 1 at step {n}") for n in range(20))
    error = logged(21, "gpu-17", "[rank1]: ValueError: bad shard")
    trace = logged(20, "gpu-17", "[rank1]: Traceback (most recent call last):")
    found = diagnosed(tmp_path, "".join(lines) + trace + error)
    assert [cause.nodes for cause in found.causes] == [["gpu-17"]], found.summary
