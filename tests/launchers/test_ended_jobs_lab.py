"""`diagnose --jobid J` on a real Slurm cluster: the job is over, its output and Slurm's account are what is left."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.lab import NODES, ROOT, Cluster, unavailable, wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.torch, pytest.mark.timeout(180)]
PROGRAM = ROOT / "tests/readers/job_logs/programs/failing_job.py"
RANK = "RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One whose controller gives a silent node up within seconds, and forgets jobs within minutes."""
    reason = unavailable()
    if reason:
        pytest.skip(reason)
    lab = Cluster()
    lab.env |= {"CLUSTER_SLURMD_TIMEOUT": "10", "CLUSTER_MSG_TIMEOUT": "4"}
    try:
        lab.up()
        if not lab.netns:
            pytest.skip("the lab's Slurm cluster needs the right to make namespaces")
        yield lab
    finally:
        lab.down()


def submit(cluster: Cluster, kind: str, rank: int, port: int, **settings: str) -> str:
    """`failing_job.py KIND RANK` with a rank on each node."""
    environ = {"MASTER_ADDR": "n1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "eth0"}
    environ |= {"OMP_NUM_THREADS": "1", **settings}
    exports = " ".join(f"{name}={value}" for name, value in environ.items())
    run = f"bash -c '{RANK} exec {sys.executable} {PROGRAM} {kind} {rank}'"
    return cluster.submit(
        f"-N{NODES}", "--ntasks-per-node=1", "--no-requeue", script=f"export {exports}\nsrun {run}"
    )


def over(cluster: Cluster, job: str) -> str:
    """Its state, once it has ended."""
    running = ("RUNNING", "PENDING", "COMPLETING", "CONFIGURING", "")
    wait_until(lambda: cluster.state(job) not in running, f"job {job} ends", 120)
    return cluster.state(job)


def output(cluster: Cluster, job: str) -> Path:
    return cluster.folder / f"job-{job}.out"


def wait_training(cluster: Cluster, job: str) -> None:
    path = output(cluster, job)
    wait_until(lambda: path.exists() and "iteration" in path.read_text(), "it trains", 100)


def diagnose(cluster: Cluster, *args: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "hangdoctor", "diagnose", "--json", "-", *args]
    said: dict[str, Any] = json.loads(cluster.login(*command))
    return said


def causes(said: dict[str, Any]) -> list[tuple[str, list[int], list[str]]]:
    return [(c["kind"], c["ranks"], c["nodes"]) for c in said["causes"]]


@pytest.mark.parametrize(
    ("kind", "cause", "port"), [("exception", "error", 29641), ("kill", "dead", 29642)]
)
def test_who_failed_first(cluster: Cluster, kind: str, cause: str, port: int) -> None:
    job = submit(cluster, kind, 2, port)
    assert over(cluster, job) == "FAILED"
    said = diagnose(cluster, "--jobid", job)
    assert (said["status"], causes(said)) == ("failed", [(cause, [2], ["n3"])]), output(
        cluster, job
    ).read_text()
    assert said["job"]["id"] == f"slurm:{job}"
    account = [h for h in said["chain"] if h["file"] == f"Slurm's account of job {job}"]
    assert account and f"job {job} FAILED" in account[0]["says"], said["chain"]


def test_a_job_that_was_cancelled_has_no_culprit(cluster: Cluster) -> None:
    job = submit(cluster, "healthy", 0, 29644, STEPS="5000", LIMIT_S="120")
    wait_training(cluster, job)
    running = diagnose(cluster, "--jobid", job)
    assert running["causes"] == []
    assert any(f"hangdoctor dump --jobid {job}" in m["why"] for m in running["missing"]) or (
        "hangdoctor dump" in json.dumps(running)
    )
    command = [sys.executable, "-m", "hangdoctor", "diagnose", "--jobid", job]
    with cluster.controller_stopped():
        mute = cluster.node("exec", "login", *command, check=False)
    assert mute.returncode == 1 and "controller did not answer" in mute.stderr
    cluster.login("scancel", job)
    over(cluster, job)
    said = diagnose(cluster, "--jobid", job)
    assert (said["status"], said["causes"]) == ("unknown", [])
    assert "cancelled" in said["summary"]


def test_what_cannot_be_found_is_said(cluster: Cluster) -> None:
    command = [sys.executable, "-m", "hangdoctor", "diagnose", "--jobid"]
    absent = cluster.node("exec", "login", *command, "987654", check=False)
    assert absent.returncode == 1 and "Slurm knows no job 987654" in absent.stderr
    job = cluster.submit("-N1", script="exit 3")
    wait_until(lambda: cluster.state(job) == "FAILED", "it ends")
    output(cluster, job).unlink()
    silent = cluster.node("exec", "login", *command, job, check=False)
    assert silent.returncode == 1 and f"no output of job {job} was found" in silent.stderr
    assert "exit code 3:0" in silent.stderr


def test_a_node_that_failed(cluster: Cluster) -> None:
    job = submit(cluster, "healthy", 0, 29643, STEPS="5000", LIMIT_S="120")
    wait_training(cluster, job)
    cluster.node("crash", "n4")
    try:
        assert over(cluster, job) == "NODE_FAIL"
        said = diagnose(cluster, "--jobid", job)
    finally:
        cluster.node("boot", "n4")
    assert [(c["kind"], c["nodes"]) for c in said["causes"]] == [("unreachable", ["n4"])], output(
        cluster, job
    ).read_text()
    assert said["status"] == "failed"
