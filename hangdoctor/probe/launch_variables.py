"""Which variables say that a process is a rank, whatever started it: one table and one order for
the probe, the readers and the trainer. Standard library only.

Nearest launcher first: torchrun runs inside what srun or mpiexec started, and mpiexec runs inside a
Slurm allocation, whose variables its ranks inherit, the same ones for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:  # loaded by every Python below `hangdoctor run`: no more imports than needed
    from typing import TypeAlias

    Names: TypeAlias = "tuple[str, ...]"
    Number: TypeAlias = "Callable[[Mapping[str, str], str], int]"

# By launcher: names of rank, world size, local rank and local world size; of several names for one
# number the first that is set counts.
TORCH, OPEN_MPI, PMI, PALS, SLURM = "torch", "openmpi", "pmi", "pals", "slurm"
VARIABLES: dict[str, tuple[Names, Names, Names, Names]] = {
    TORCH: (("RANK",), ("WORLD_SIZE",), ("LOCAL_RANK",), ("LOCAL_WORLD_SIZE",)),
    OPEN_MPI: (
        ("OMPI_COMM_WORLD_RANK",),
        ("OMPI_COMM_WORLD_SIZE",),
        ("OMPI_COMM_WORLD_LOCAL_RANK",),
        ("OMPI_COMM_WORLD_LOCAL_SIZE",),
    ),
    # Cray's PMI and PALS have the first of each pair of local names, Hydra the second.
    PMI: (
        ("PMI_RANK",),
        ("PMI_SIZE",),
        ("PMI_LOCAL_RANK", "MPI_LOCALRANKID"),
        ("PMI_LOCAL_SIZE", "MPI_LOCALNRANKS"),
    ),
    PALS: (
        ("PALS_RANKID",),
        ("PALS_SIZE", "PALS_NRANKS"),
        ("PALS_LOCAL_RANKID",),
        ("PALS_LOCAL_SIZE",),
    ),
    # The step's own size where it is shown: SLURM_NTASKS may be the whole allocation's.
    SLURM: (
        ("SLURM_PROCID",),
        ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        ("SLURM_LOCALID",),
        (),
    ),
}
MPI = (OPEN_MPI, PMI, PALS)
RANK_NAMES = tuple(names[0][0] for names in VARIABLES.values())


class Place:
    """One process's place in its job; -1 for what the environment does not show."""

    __slots__ = ("launcher", "local_rank", "local_size", "rank", "size")

    def __init__(self, launcher: str, numbers: list[int]) -> None:
        self.launcher = launcher
        self.rank, self.size, self.local_rank, self.local_size = numbers


def place_of(environ: Mapping[str, str], number: Number) -> Place | None:
    """What the environment says of this process as a rank; None where it shows no rank.

    `number` reads a variable: -1 where it is not set or not a number that its user accepts.
    """
    found = [
        Place(launcher, [_first(environ, number, names) for names in row])
        for launcher, row in VARIABLES.items()
    ]
    ranks = [place for place in found if place.rank >= 0]
    if not ranks:
        return None
    # A rank without a world is less than a launcher says: a program's own variable may be so named.
    best = next((p for p in ranks if p.size > 0), ranks[0])
    step = ranks[-1]
    if step.launcher == SLURM and _is_left_over(best, step, _first(environ, number, _STEP)):
        best = step
    for other in ranks:
        if best.local_rank < 0 and (other.rank, other.size) == (best.rank, best.size):
            best.local_rank, best.local_size = other.local_rank, other.local_size
    return best


_STEP = ("SLURM_STEP_NUM_TASKS",)


def _is_left_over(best: Place, step: Place, tasks: int) -> bool:
    """Whether a library's world of one rank is the shell's in which srun was called: an interactive
    step of Slurm gives its shell PMI_RANK 0 of 1, and srun passes that on to every task.
    """
    return best.launcher in MPI and best.size == 1 and tasks > 1


def _first(environ: Mapping[str, str], number: Number, names: Names) -> int:
    return next((found for name in names if (found := number(environ, name)) >= 0), -1)
