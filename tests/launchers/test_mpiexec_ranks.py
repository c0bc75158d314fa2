"""Ranks of a real `mpiexec`, inside a Slurm allocation and outside of one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.lab import ROOT, Cluster, wait_until
from tests.support.mpi import ALONE, clean_environ, programs

WHO = """
import json, os, sys
from hangdoctor.probe.identity import ranks_from
from hangdoctor.readers.rank_environment import rank_of
from hangdoctor.train.launch import discover
own = discover()
found = [ranks_from(os.environ), rank_of(os.environ)[:3], [own.rank, own.world_size, own.local_rank]]
sys.stdout.write(json.dumps(found) + "\\n")
"""
BATCH = {"SLURM_JOB_ID": "77", "SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0"}


@pytest.mark.skipif(not programs(), reason="mpiexec is not installed (scripts/setup-slurm)")
@pytest.mark.parametrize("program", programs())
@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in a batch script"])
def test_each_rank_has_its_own_number(program: str, inside: bool, tmp_path: Path) -> None:
    env = clean_environ() | ALONE | {"PYTHONPATH": str(ROOT)} | (BATCH if inside else {})
    command = [program, "-n", "2", sys.executable, "-c", WHO]
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stderr
    said = sorted(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
    assert said == [[[rank, 2, rank]] * 3 for rank in (0, 1)]


@pytest.mark.slurm
@pytest.mark.skipif(shutil.which("mpiexec.hydra") is None, reason="Hydra is not installed")
def test_hydra_on_two_nodes_of_an_allocation(cluster: Cluster) -> None:
    """Its helpers are tasks of a step of their own, whose numbers its ranks inherit."""
    who = cluster.folder / "who.py"
    who.write_text(f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{WHO}")
    command = f"mpiexec.hydra -n 4 -ppn 2 {sys.executable} {who}"
    script = f"export MASTER_ADDR=n1\n{command}"
    job = cluster.submit("-N2", "--ntasks-per-node=2", script=script)
    wait_until(
        lambda: cluster.state(job) in ("COMPLETED", "FAILED", "CANCELLED"), f"job {job} ended", 60
    )
    said = (cluster.folder / f"job-{job}.out").read_text()
    assert cluster.state(job) == "COMPLETED", said
    found = sorted(json.loads(line) for line in said.splitlines() if line.startswith("["))
    assert found == [[[rank, 4, rank % 2]] * 3 for rank in range(4)], said
