"""JAX: a barrier around a checkpoint, as orbax has it, on process 0 alone; the others gather."""
# framework: jax
# start: shell
# culprit: 0
# kinds: order, not_entered, mismatch
# frame: write_checkpoint

import sys

import jax
import numpy
from come import last_step
from jax._src import distributed
from jax.experimental import multihost_utils


def write_checkpoint() -> None:
    distributed.global_state.client.wait_at_barrier("checkpoint", 3_600_000)


def evaluate():
    return multihost_utils.process_allgather(numpy.ones(4))


def main() -> None:
    rank = int(sys.argv[1])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{sys.argv[2]}", 4, rank)
    for step in range(4):
        evaluate()
        if step == 2:
            last_step(rank)
            if rank == 0:
                write_checkpoint()


main()
