"""mpi4py: rank 3 raises; its Python shuts down, and MPI_Finalize waits for the others."""
# framework: mpi4py
# start: mpirun
# culprit: 3
# kinds: end_stall
# frame: none

import numpy
from come import last_step
from mpi4py import MPI


def conductivity(tile: numpy.ndarray) -> numpy.ndarray:
    if tile.max() > 2000.0:
        raise ValueError(f"temperature {tile.max():.1f} outside of the table")
    return 0.1 + 0.00005 * tile


def main() -> None:
    world = MPI.COMM_WORLD
    total = numpy.zeros(8)
    for step in range(6):
        tile = numpy.full(8, 20.0)
        if step == 3:
            last_step(world.rank)
            tile += 4000.0 * (world.rank == 3)
        world.Allreduce(conductivity(tile), total)


main()
