"""One order of launchers' variables for the probe, the readers and the trainer, held against real
launchers in and out of an allocation.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hangdoctor.probe.identity import ranks_from
from hangdoctor.readers.rank_environment import rank_of
from hangdoctor.train.launch import discover
from tests.support import mpi

ROOT = Path(__file__).parents[2]
SAY = """
import json, os, sys
from hangdoctor.probe.identity import ranks_from
from hangdoctor.readers.rank_environment import rank_of
from hangdoctor.train.launch import discover
trainer = discover()
told = [
    [trainer.rank, trainer.world_size, trainer.local_rank],
    ranks_from(os.environ),
    rank_of(os.environ)[:3],
]
os.write(1, (json.dumps([*told, trainer.address]) + "\\n").encode())
"""
CRAY = {"PMI_RANK": "5", "PMI_SIZE": "8", "PMI_LOCAL_RANK": "1", "PMI_LOCAL_SIZE": "4"}
PALS = {"PALS_RANKID": "5", "PALS_LOCAL_RANKID": "1"}
ALLOCATION = {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_LOCALID": "0"}
STEP = {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_NTASKS": "8"}
STEP |= {"SLURM_LOCALID": "1"}


def all_three(environ: dict[str, str]) -> set[tuple[int, int, int]]:
    """What each user of the table says: one element where they agree."""
    told = rank_of(environ)
    assert told is not None
    trainer = discover({**environ, "MASTER_ADDR": "n1"})
    return {
        (trainer.rank, trainer.world_size, trainer.local_rank),
        ranks_from(environ),
        told[:3],
    }


@pytest.mark.parametrize(
    "environ",
    [
        pytest.param(CRAY | PALS, id="polaris"),
        pytest.param(CRAY | ALLOCATION, id="mpiexec in an allocation"),
        pytest.param({"PMI_RANK": "5", "PMI_SIZE": "8", **STEP}, id="srun --mpi=pmi2"),
        pytest.param({"PMI_RANK": "0", "PMI_SIZE": "1", **STEP}, id="srun in an interactive step"),
        pytest.param(STEP | {"SLURM_NTASKS": "64"}, id="a step of a larger allocation"),
        pytest.param(
            {"PALS_RANKID": "5", "PALS_SIZE": "8", "PALS_LOCAL_RANKID": "1"}, id="pals alone"
        ),
        pytest.param(
            {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"} | ALLOCATION, id="torchrun in it"
        ),
        pytest.param({"RANK": "3"} | STEP, id="a variable of that name alone"),
    ],
)
def test_nearest_launcher_first(environ: dict[str, str]) -> None:
    assert all_three(environ) == {(5, 8, 1)}


@pytest.mark.parametrize("allocation", [{}, mpi.ALLOCATION], ids=["alone", "in an allocation"])
@pytest.mark.parametrize("kind", ["hydra", "openmpi"])
def test_ranks_of_a_real_mpiexec(kind: str, allocation: dict[str, str]) -> None:
    command = mpi.kinds().get(kind)
    if command is None:
        pytest.skip(f"no mpiexec of {kind} (scripts/setup-slurm, scripts/setup-frameworks)")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "PMI", "OMPI"))}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"):
        clean.pop(name, None)
    env = clean | mpi.AS_ANYONE | allocation | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "-n", "2", sys.executable, "-c", SAY],
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    told = sorted(json.loads(line) for line in done.stdout.splitlines())
    assert told == [[[rank, 2, rank]] * 3 + ["127.0.0.1"] for rank in (0, 1)]


def test_meeting_place_of_mpiexec_on_several_nodes() -> None:
    """On the nodes that mpiexec reaches by a step of its own, that step's list lacks rank 0's."""
    far = {"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_STEP_NODELIST": "n2"}
    mpiexec = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}
    assert discover(far | mpiexec).address == "n1"
    # Open MPI numbers the ranks of one node in its own order.
    here = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}
    here |= {"OMPI_COMM_WORLD_LOCAL_RANK": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}
    assert discover(far | here).address == discover(here).address == "127.0.0.1"
    assert discover(far | {"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}).address == "n2"
