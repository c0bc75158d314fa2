"""`top --jobid` from the login node of a real Slurm cluster: it brings its own agents and takes
them away again.
"""

from __future__ import annotations

import sys

import pytest

from tests.support.lab import JOB, Cluster, LabJob, wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.torch, pytest.mark.timeout(240)]
SETTINGS = "export OMP_NUM_THREADS=1 MASTER_ADDR=n1 GLOO_SOCKET_IFNAME=eth0 MASTER_PORT=29744"


@pytest.mark.full
def test_one_sample_at_a_job_and_nothing_left(cluster: Cluster) -> None:
    job = LabJob(cluster, "looked-at", 4)
    run = f"{sys.executable} -m hangdoctor run -- {sys.executable} {JOB} {job.control}"
    places = ("-N2", "-w", "n1,n2", "--ntasks-per-node=2", "--overcommit", "--oversubscribe")
    job.id = cluster.submit(*places, script=f"{SETTINGS}\nsrun {run}")
    try:
        job.hang(3)
        top = cluster.node(
            "exec", "login", sys.executable, "-m", "hangdoctor", "top", "--jobid", job.id, "--once"
        )
        shown = top.stdout
        assert "4 ranks" in shown and "3 waiting" in shown and "1 outside" in shown, (
            shown + top.stderr
        )
        assert (
            "Rank 3 (n2) is in no recorded operation; 3 ranks have been waiting in all_reduce"
            in shown
        ), shown
        wait_until(
            lambda: not cluster.processes("n1", "hangdoctor agent"),
            "the agent of n1 has gone with it",
        )
        job.finish()
    finally:
        cluster.login("scancel", job.id)
