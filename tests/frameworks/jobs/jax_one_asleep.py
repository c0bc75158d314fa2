"""JAX, one process a rank: process 1 waits for a file, the others are in a collective."""
# framework: jax
# start: shell
# culprit: 1
# kinds: not_entered
# frame: load_shard

import sys
import time
from pathlib import Path

import jax
import numpy
from come import last_step
from jax.experimental import multihost_utils


def load_shard(path: Path) -> None:
    while not path.exists():
        time.sleep(0.5)


def main() -> None:
    rank = int(sys.argv[1])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{sys.argv[2]}", 4, rank)
    for step in range(4):
        if step == 2:
            last_step(rank)
            if rank == 1:
                load_shard(Path("/nonexistent/shard"))
        multihost_utils.process_allgather(numpy.ones(4))


main()
