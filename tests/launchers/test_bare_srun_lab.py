"""The trainer under a real `srun`, one rank on each of two nodes, told nothing but what Slurm
shows.
"""

from __future__ import annotations

import sys

import pytest

from tests.support import mpi
from tests.support.lab import ROOT, Cluster, wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.torch, pytest.mark.timeout(240)]

FLAGS = (
    "--parallel.pp 2 --train.iterations 2 --train.global_batch 2 --model.layers 2 --model.hidden_size 32 --model.seq_length 32"
    " --data.workers 0"
)


def test_srun_is_enough(cluster: Cluster) -> None:
    settings = "export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=eth0"
    data = cluster.folder / "data"  # its own: the nodes share it
    script = f"{settings}\ncd {ROOT}\nsrun {sys.executable} -m hangdoctor.train {FLAGS} --data.cache {data}"
    job = cluster.submit("-N2", "--ntasks-per-node=1", script=script)
    wait_until(
        lambda: cluster.state(job) in ("COMPLETED", "FAILED", "CANCELLED"),
        f"job {job} has ended",
        150,
    )
    said = (cluster.folder / f"job-{job}.out").read_text()
    assert cluster.state(job) == "COMPLETED", said
    assert "2 ranks = tp 1 x pp 2 x dp 1" in said
    assert "iteration        2/       2" in said


def test_mpiexec_within_an_allocation_numbers_the_ranks(cluster: Cluster) -> None:
    """Hydra reaches the second node by a step of its own, whose numbers the ranks there inherit.
    Open MPI as its wheel is built asks Slurm nothing and starts all four on the first node.
    """
    say = cluster.folder / "say.py"
    say.write_text(
        "from hangdoctor.train.launch import discover\n"
        "import os\n"
        "here = discover()\n"
        "os.write(1, f'{here.rank} of {here.world_size} at {here.address}\\n'.encode())\n"
    )
    settings = [f"export PYTHONPATH={ROOT}", *(f"export {k}={v}" for k, v in mpi.AS_ANYONE.items())]
    calls = [f"{command[0]} -n 4 {sys.executable} {say}" for command in mpi.kinds().values()]
    if not calls:
        pytest.skip("mpiexec is not installed (scripts/setup-slurm)")
    script = "\n".join([*settings, *calls])
    job = cluster.submit("-N2", "-n4", "-w", "n1,n2", "--ntasks-per-node=2", script=script)
    wait_until(
        lambda: cluster.state(job) in ("COMPLETED", "FAILED", "CANCELLED"),
        f"job {job} has ended",
        150,
    )
    said = (cluster.folder / f"job-{job}.out").read_text()
    assert cluster.state(job) == "COMPLETED", said
    meeting_place = {"hydra": "n1", "openmpi": "127.0.0.1"}
    wanted = [f"{rank} of 4 at {meeting_place[kind]}" for kind in mpi.kinds() for rank in range(4)]
    assert sorted(said.splitlines()) == sorted(wanted), said
