"""The benchmark of the probe runs and prints its table; what it measures is not asserted here."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.probe_ranks import ROOT


@pytest.mark.full
@pytest.mark.torch
def test_the_benchmark_runs() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.probe_overhead", "--rounds", "2", "--times", "20"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        text=True,
        capture_output=True,
        timeout=100,
    )
    assert ended.returncode == 0, ended.stderr
    rows = [
        line.split("|")[1].strip() for line in ended.stdout.splitlines() if line.startswith("| ")
    ]
    assert rows == [
        "Call",
        "gloo all_reduce",
        "gloo all_reduce, async and wait",
        "wrapper around nothing",
    ]
