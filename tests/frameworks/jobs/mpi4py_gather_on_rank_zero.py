"""mpi4py: a barrier on rank 0 alone; the others are in the next all_reduce."""
# framework: mpi4py
# start: mpirun
# culprit: 0
# kinds: order, not_entered, mismatch
# frame: write_output

import numpy
from come import last_step
from mpi4py import MPI


def write_output(world: MPI.Comm) -> None:
    world.Barrier()


def main() -> None:
    world = MPI.COMM_WORLD
    total = numpy.zeros(1 << 16)
    for step in range(6):
        if step == 3:
            last_step(world.rank)
            if world.rank == 0:
                write_output(world)
        world.Allreduce(numpy.ones(1 << 16), total)


main()
