"""mpi4py: rank 2 counts a retry as a round, so that its result has another tag than rank 0 waits for."""
# framework: mpi4py
# start: mpirun
# culprit: 0,2
# kinds: in_communication
# frame: collect|reply

import numpy
from come import last_step
from mpi4py import MPI

WORLD = MPI.COMM_WORLD


def collect(task: int) -> None:
    row = numpy.empty(8)
    for worker in range(1, WORLD.size):
        WORLD.Recv(row, source=worker, tag=task)


def reply(task: int) -> None:
    WORLD.Ssend(numpy.ones(8), dest=0, tag=task)


def main() -> None:
    for step in range(6):
        if step == 3:
            last_step(WORLD.rank)
        WORLD.Barrier()
        if WORLD.rank:
            reply(step + (step >= 3 and WORLD.rank == 2))
        else:
            collect(step)


main()
