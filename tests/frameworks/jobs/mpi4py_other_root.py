"""mpi4py: a near tie makes rank 1 collect the best solution itself; all others send theirs to rank 2."""
# framework: mpi4py
# start: mpirun
# culprit: 1
# kinds: mismatch
# frame: share_best

import numpy as np
from come import last_step
from mpi4py import MPI

world = MPI.COMM_WORLD


def share_best(costs: list[float], mine: np.ndarray, tolerance: float) -> np.ndarray:
    best = int(np.argmin(costs))
    if costs[world.rank] - min(costs) < tolerance:
        best = world.rank
    table = world.gather(mine, root=best)
    chosen = table[best] if table is not None else None
    return world.bcast(chosen, root=best)


def main() -> None:
    mine = np.full(4, float(world.rank))
    for step in range(6):
        if step == 4:
            last_step(world.rank)
        costs = [5.0, 1.02 if step == 4 else 3.0, 1.0, 4.0]
        mine = share_best(costs, mine, tolerance=0.1)
    world.Barrier()


main()
