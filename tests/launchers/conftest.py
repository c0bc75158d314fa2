"""One lab cluster for all tests of the session, and one job on it that they hang, break and mend."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.support.lab import JOB, NODES, Cluster, LabJob, running_cluster

RANK_SETTINGS = "export OMP_NUM_THREADS=1 MASTER_ADDR=n1 GLOO_SOCKET_IFNAME=eth0 MASTER_PORT="

# Runs `dump` inside the job's batch step when a test asks for it.
SCRIPT = """
{settings}29511
srun {python} {job} {control} &
while [ ! -e {control}/end ]; do
  if [ -e {control}/inside.ask ]; then
    {python} -m hangdoctor dump --no-bundle --json {control}/inside.json --jobid $SLURM_JOB_ID >{control}/inside.out 2>&1
    echo $? > {control}/inside.part; mv {control}/inside.part {control}/inside.code; rm {control}/inside.ask
  fi
  sleep 0.1
done
wait
"""


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as lab:
        yield lab


@pytest.fixture(scope="session")
def job(cluster: Cluster) -> LabJob:
    """Four nodes, two ranks each. It ends with the cluster."""
    lab_job = LabJob(cluster, "job", 2 * NODES)
    script = SCRIPT.format(
        settings=RANK_SETTINGS, python=sys.executable, job=JOB, control=lab_job.control
    )
    lab_job.id = cluster.submit(f"-N{NODES}", "--ntasks-per-node=2", "--gres=gpu:4", script=script)
    return lab_job


@pytest.fixture(scope="session")
def torchrun_job(cluster: Cluster) -> LabJob:
    """One task a node, and torchrun with two ranks in each."""
    lab_job = LabJob(cluster, "torchrun", 4)
    run = (
        f"{sys.executable} -m torch.distributed.run --nnodes 2 --nproc-per-node 2 --node-rank $SLURM_NODEID "
        f"--master-addr n1 --master-port 29622 {JOB} {lab_job.control}"
    )
    script = f"{RANK_SETTINGS}29622\nsrun --ntasks-per-node=1 bash -c '{run}'"
    lab_job.id = cluster.submit("-N2", "-w", "n1,n2", "--ntasks-per-node=1", script=script)
    return lab_job
