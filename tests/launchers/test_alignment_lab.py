"""Two nodes of a real cluster whose clocks are an hour apart: dumped together, and put on one axis.

A time namespace moves the monotonic clocks only and the ranks record the wall clock, so the ranks
of the second node are given one that is an hour ahead, at the edge of the program
(`timeline_job.py`): both nodes being one machine, the truth is known exactly.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.lab import ROOT, Cluster, wait_until

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.torch,
    pytest.mark.timeout(200),
    pytest.mark.skipif(shutil.which("cc") is None, reason="the clock that is ahead is made in C"),
]
JOB = ROOT / "tests" / "support" / "jobs" / "timeline_job.py"
AHEAD = 3600 * 10**9
SCRIPT = """
export OMP_NUM_THREADS=1 MASTER_ADDR=n1 MASTER_PORT=29533 GLOO_SOCKET_IFNAME=eth0
srun {python} {job} {folder} 8 {ahead}
"""


@pytest.mark.full
def test_clocks_an_hour_apart_are_aligned_within_a_millisecond(cluster: Cluster) -> None:
    folder = cluster.folder / "alignment"
    folder.mkdir()
    script = SCRIPT.format(python=sys.executable, job=JOB, folder=folder, ahead=AHEAD)
    job = cluster.submit("-N2", "-w", "n1,n2", "--ntasks-per-node=2", script=script)
    out = cluster.folder / f"job-{job}.out"
    try:
        wait_until(
            lambda: out.exists() and out.read_text().count("trained") == 4,
            f"the job is through: {out}",
            150,
        )
        hangdoctor = [sys.executable, "-m", "hangdoctor"]
        cluster.login(
            *hangdoctor, "dump", "--quiet", "--jobid", job, "--bundle", str(folder / "bundle")
        )
    finally:
        cluster.login("scancel", "--signal=KILL", "--full", job)
    told = json.loads(
        cluster.login(*hangdoctor, "trace", "stragglers", str(folder / "bundle"), "--json", "-")
    )
    near, far = told["clocks"]
    assert near.startswith("clock n1/") and near.endswith("(ranks 0-1): the reference")
    assert far.startswith("clock n2/") and "(ranks 2-3): " in far
    offset, bound = far.partition("): ")[2].split(" s, within ")
    error = abs(float(offset) * 1e9 + AHEAD)
    assert error <= float(bound.removesuffix(" ms")) * 1e6 + 2000
    assert error < 1_000_000, far
    assert [r["node"] for r in told["ranks"]] == ["n1", "n1", "n2", "n2"]
    # Waiting within a step is milliseconds, or seconds on a busy machine: with the clocks as they
    # are it would be an hour.
    assert max(r["waited_ms"] for r in told["ranks"]) < 100_000
    assert Path(folder / "bundle" / "operations.bin").stat().st_size < 200_000
