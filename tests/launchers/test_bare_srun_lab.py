"""The trainer under a real `srun`, one rank on each of two nodes, told nothing but what Slurm
shows.
"""

from __future__ import annotations

import sys

import pytest

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
