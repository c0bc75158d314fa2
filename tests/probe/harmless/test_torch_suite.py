"""A sample of torch's own distributed tests ends the same plain, below `hangdoctor run`, and
traced.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SAMPLE = """
test_all_gather test_all_reduce_sum_async test_batch_isend_irecv_gloo test_scatter_object_list
test_send_recv_any_source test_monitored_barrier_gloo_subgroup test_DistributedDataParallelCPU
""".split()


@pytest.mark.full
@pytest.mark.torch
@pytest.mark.timeout(240)
def test_a_sample_ends_the_same() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.torch_suite", "--only", *SAMPLE],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
        capture_output=True,
        timeout=220,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in ended.stdout.splitlines()
        if line.startswith("| ")
    ]
    for mode, passed, skipped, failed, at_work, _ in rows[1:]:
        assert (int(passed), int(skipped), int(failed)) == (len(SAMPLE), 0, 0), ended.stdout
        assert mode == "plain" or int(at_work) == len(SAMPLE), ended.stdout
    assert [row[0] for row in rows[1:]] == ["plain", "run", "traced"]
