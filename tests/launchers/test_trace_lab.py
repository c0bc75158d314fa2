"""Call tracing on the nodes of a real Slurm job: switched on from the login node, and in the verdict of its dump."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from lab import JOB, Cluster, LabJob

SETTINGS = "export OMP_NUM_THREADS=1 MASTER_ADDR=n1 GLOO_SOCKET_IFNAME=eth0 MASTER_PORT=29633"
pytestmark = [pytest.mark.slurm, pytest.mark.torch, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def traced(cluster: Cluster) -> Iterator[LabJob]:
    """Two nodes with two ranks each, which carry the probe."""
    job = LabJob(cluster, "traced", 4)
    run = f"{sys.executable} -m hangdoctor run -- {sys.executable} {JOB} {job.control}"
    job.id = cluster.submit(
        "-N2",
        "-w",
        "n1,n2",
        "--ntasks-per-node=2",
        "--overcommit",
        "--oversubscribe",
        script=f"{SETTINGS}\nsrun {run}",
    )
    try:
        yield job
    finally:
        cluster.login("scancel", job.id)


def trace(cluster: Cluster, *arguments: str) -> str:
    done = cluster.node("exec", "login", sys.executable, "-m", "hangdoctor", "trace", *arguments)
    return done.stdout + done.stderr


def test_the_switch_reaches_every_node(cluster: Cluster, traced: LabJob) -> None:
    traced.finish()
    said = trace(cluster, "start", "--jobid", traced.id, "--follow", "lab_job", "--wait", "30")
    assert "ranks 0-3: tracing" in said, said
    rows = trace(cluster, "status", "--jobid", traced.id).splitlines()
    assert [line.split()[:2] for line in rows if " live " in line] == [["0", "n1"], ["1", "n1"], ["2", "n2"], ["3", "n2"]], rows
    assert sum(" tracing " in line for line in rows) >= 4

    traced.hang(3)
    verdict = cluster.dump("--jobid", traced.id)
    assert verdict["causes"][0]["ranks"] == [3]
    calls = verdict["calls"]
    assert calls["culprit"]["rank"] == 3 and "stay_away" in calls["culprit"]["calls"][0]
    assert "say" in calls["peer"]["calls"][0]
    traced.finish()
    assert "ranks 0-3: stopped" in trace(cluster, "stop", "--jobid", traced.id, "--wait", "30")
