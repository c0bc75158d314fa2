"""mpi4py: rank 3 reads a file that does not come; Open MPI's waits use the processor."""
# framework: mpi4py
# start: mpirun
# culprit: 3
# kinds: not_entered
# frame: read_boundary

import time
from pathlib import Path

import numpy
from come import last_step
from mpi4py import MPI


def read_boundary(path: Path) -> None:
    while not path.exists():
        time.sleep(0.5)


def main() -> None:
    world = MPI.COMM_WORLD
    total = numpy.zeros(8)
    for step in range(6):
        if step == 3:
            last_step(world.rank)
            if world.rank == 3:
                read_boundary(Path("/nonexistent/boundary"))
        world.Allreduce(numpy.ones(8), total)


main()
