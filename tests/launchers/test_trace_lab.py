"""Call tracing on the nodes of a real Slurm job: switched on from the login node, and in the
verdict of its dump.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.lab import JOB, LAB, Cluster, LabJob, wait_until

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


@pytest.mark.full
def test_the_switch_reaches_every_node(cluster: Cluster, traced: LabJob) -> None:
    traced.finish()
    said = trace(cluster, "start", "--jobid", traced.id, "--follow", "lab_job", "--wait", "30")
    assert "ranks 0-3: tracing" in said, said
    rows = trace(cluster, "status", "--jobid", traced.id).splitlines()
    assert [line.split()[:2] for line in rows if " live " in line] == [
        ["0", "n1"],
        ["1", "n1"],
        ["2", "n2"],
        ["3", "n2"],
    ], rows
    assert sum(" tracing " in line for line in rows) >= 4

    traced.hang(3)
    verdict = cluster.dump("--jobid", traced.id)
    assert verdict["causes"][0]["ranks"] == [3]
    calls = verdict["calls"]
    assert calls["culprit"]["rank"] == 3
    assert any("stay_away" in line for line in calls["culprit"]["inside"]), calls
    assert "then rank 3 called stay_away" in calls["says"], calls
    tail_from_the_login_node(cluster, traced)
    traced.finish()
    assert "ranks 0-3: stopped" in trace(cluster, "stop", "--jobid", traced.id, "--wait", "30")

    with following(cluster, traced, "2") as tail:  # the job ends before the reader does
        cluster.login("scancel", traced.id)
        said = tail.communicate(timeout=80)[1]
        assert tail.returncode == 0 and "Traceback" not in said, said
        assert "the process has ended" in said or "the job ended" in said, said


def tail_from_the_login_node(cluster: Cluster, traced: LabJob) -> None:
    """The rank is found on its node; what it says comes line by line, and nothing is left behind
    when no one reads it.
    """
    shown = trace(cluster, "tail", "--jobid", traced.id, "--rank", "3", "-n", "5", "--no-wait")
    assert "> stay_away (" in shown and "hangdoctor: rank 3: " in shown and "Traceback" not in shown
    words = ["trace", "tail", "--jobid", traced.id, "--rank"]
    refused = cluster.node(
        "exec", "login", sys.executable, "-m", "hangdoctor", *words, "9", check=False
    )
    assert refused.returncode == 1 and "There are: 0-3." in refused.stderr

    with following(cluster, traced, "3") as tail:
        assert cluster.processes("n2", "trace tail") and cluster.processes("login", "srun --jobid")
        assert tail.stdout is not None
        tail.stdout.close()
        assert tail.wait(timeout=60) == 0
    wait_until(lambda: not cluster.processes("n2", "trace tail"), "the step on the node has ended")
    assert not cluster.processes("login", "srun --jobid")


@contextlib.contextmanager
def following(cluster: Cluster, traced: LabJob, rank: str) -> Iterator[subprocess.Popen[str]]:
    """A `tail` on the login node that has shown its first line."""
    words = ["trace", "tail", "--jobid", traced.id, "--rank", rank, "--all-threads"]
    tail = subprocess.Popen(
        [LAB / "cluster-node", "exec", "login", sys.executable, "-m", "hangdoctor", *words],
        env=cluster.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert tail.stdout is not None and "tracing switched on" in tail.stdout.readline()
        yield tail
    finally:
        tail.kill()
        tail.wait(timeout=20)
