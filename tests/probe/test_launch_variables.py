"""Whose variables a rank is known by: one rule in the probe, in the readers and in the trainer."""

from __future__ import annotations

import pytest

from hangdoctor.probe.identity import ranks_from
from hangdoctor.readers.rank_environment import rank_of
from hangdoctor.train.launch import discover
from hangdoctor.train.options import ConfigError

# As a batch script has them, and all that it starts without srun.
BATCH = {
    "SLURM_JOB_ID": "77",
    "SLURM_PROCID": "0",
    "SLURM_NTASKS": "4",
    "SLURM_LOCALID": "0",
    "MASTER_ADDR": "n1",
}
STEP = {
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "4",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_LOCALID": "1",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
}
HYDRA = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"}
CRAY = {"PMI_RANK": "5", "PMI_SIZE": "8", "PMI_LOCAL_RANK": "1", "PMI_LOCAL_SIZE": "4"}
PALS = {"PALS_RANKID": "5", "PALS_LOCAL_RANKID": "1"}

CASES = {
    "torchrun": ({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"} | BATCH, (3, 4, 1)),
    "srun": (BATCH | STEP, (3, 4, 1)),
    "srun --mpi=pmi2": (BATCH | STEP | {"PMI_RANK": "3", "PMI_SIZE": "4"}, (3, 4, 1)),
    "srun, RANK set by the script": (
        BATCH | STEP | {"RANK": "3", "WORLD_SIZE": "4"},
        (3, 4, 1),
    ),
    "srun of fewer tasks": (BATCH | STEP | {"SLURM_NTASKS": "8"}, (3, 4, 1)),
    "mpiexec of Open MPI in a batch script": (BATCH | OPEN_MPI, (1, 2, 1)),
    "mpiexec of Hydra in a batch script": (BATCH | HYDRA, (1, 2, 1)),
    "mpiexec, its helpers started by srun": (BATCH | STEP | HYDRA, (1, 2, 1)),
    "Cray's, by its own PMI": (BATCH | PALS | CRAY, (5, 8, 1)),
    "Cray's, without PMI": (PALS | {"PALS_NRANKS": "8", "MASTER_ADDR": "n1"}, (5, 8, 1)),
    "Cray's, older": (PALS | {"PALS_SIZE": "8", "MASTER_ADDR": "n1"}, (5, 8, 1)),
}


@pytest.mark.parametrize(("environ", "numbers"), CASES.values(), ids=CASES)
def test_probe_readers_and_trainer_agree(
    environ: dict[str, str], numbers: tuple[int, int, int]
) -> None:
    trained = discover(environ)
    read = rank_of(environ)
    assert ranks_from(environ) == numbers
    assert read is not None and read[:3] == numbers
    assert (trained.rank, trained.world_size, trained.local_rank) == numbers


def test_what_another_launcher_says_fills_gaps_only_where_it_speaks_of_the_same_rank() -> None:
    foreign = BATCH | STEP | {"PMI_RANK": "3", "PMI_SIZE": "8"}
    assert ranks_from(foreign) == (3, 8, -1)
    assert rank_of(foreign) == (3, 8, -1, 0)


def test_a_rank_without_a_world_is_refused_by_the_trainer_alone() -> None:
    assert ranks_from({"RANK": "3"}) == (3, -1, -1)
    assert discover({"RANK": "0"}).world_size == 1
    with pytest.raises(ConfigError, match="WORLD_SIZE"):
        discover({"RANK": "3"})
