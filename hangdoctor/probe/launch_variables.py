"""Which variables say who a rank is, launcher by launcher: one table for the probe, the readers and
the trainer. Standard library only.

A launcher sets them in each process that it starts. Slurm's are believed last: what runs in an
allocation inherits those of the batch script, or of the step in which `mpiexec` starts its helpers.
Where `srun` sets the names of PMI too, both say the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Launcher(NamedTuple):
    """The names that one launcher uses; of several for one thing, the first that is set counts."""

    rank: str
    world_size: tuple[str, ...]
    local_rank: tuple[str, ...]
    local_world_size: tuple[str, ...] = ()


class Launched(NamedTuple):
    """What the environment says of a rank; -1 where it does not say it."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int


LAUNCHERS = (
    Launcher(
        "RANK",
        ("WORLD_SIZE",),
        ("LOCAL_RANK",),
        ("LOCAL_WORLD_SIZE",),
    ),
    Launcher(
        "OMPI_COMM_WORLD_RANK",
        ("OMPI_COMM_WORLD_SIZE",),
        ("OMPI_COMM_WORLD_LOCAL_RANK",),
        ("OMPI_COMM_WORLD_LOCAL_SIZE",),
    ),
    Launcher(
        "PMI_RANK",
        ("PMI_SIZE",),
        ("MPI_LOCALRANKID", "PMI_LOCAL_RANK"),  # of Hydra and Intel MPI, of Cray
        ("MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"),
    ),
    Launcher(
        "PALS_RANKID",
        ("PALS_NRANKS", "PALS_SIZE"),
        ("PALS_LOCAL_RANKID",),
        ("PALS_LOCAL_SIZE",),
    ),
    Launcher(
        "SLURM_PROCID",
        ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        ("SLURM_LOCALID",),
    ),
)
_DIGITS = 18  # what fits 64 bits; Python itself refuses to read more than 4,300


def launched(environ: Mapping[str, str], below: int = 1 << 31) -> Launched | None:
    """The rank by the first launcher that names one; None without any.

    `below`: larger numbers mean something else, a date or a score. What the launcher leaves out of
    the node comes from another one that names the same rank of the same world.
    """
    found: Launched | None = None
    for launcher in LAUNCHERS:
        told = _told_by(launcher, environ, below)
        if told is None:
            continue
        if found is None:
            found = told
        elif found.world_size > 0 and found[:2] == told[:2]:
            found = Launched(*found[:2], *_first_known(found[2:], told[2:]))
    return found


def _told_by(launcher: Launcher, environ: Mapping[str, str], below: int) -> Launched | None:
    def number(names: tuple[str, ...]) -> int:
        numbers = (_number(environ.get(name, ""), below) for name in names)
        return next((n for n in numbers if n >= 0), -1)

    rank = number((launcher.rank,))
    if rank < 0:
        return None
    local, local_size = number(launcher.local_rank), number(launcher.local_world_size)
    return Launched(rank, number(launcher.world_size), local, local_size)


def _first_known(one: tuple[int, ...], other: tuple[int, ...]) -> list[int]:
    return [a if a >= 0 else b for a, b in zip(one, other, strict=True)]


def _number(text: str, below: int) -> int:
    text = text.strip()
    plain = len(text) <= _DIGITS and text.isascii() and text.isdigit()
    number = int(text) if plain else -1
    return number if number < below else -1
