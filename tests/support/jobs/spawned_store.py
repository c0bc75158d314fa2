"""Four ranks that torch.multiprocessing.spawn starts and that meet in a store: one of them has
nothing to do and returns, and its process ends with code 0, while the others wait for what it was
to bring.

    spawned_store.py FOLDER PORT WHO_RETURNS
"""

from __future__ import annotations

import datetime
import sys
from pathlib import Path

import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 4


def worker(rank: int, world: int, folder: Path, port: int, leaves: int) -> None:
    limit = datetime.timedelta(minutes=20)
    store = dist.TCPStore("127.0.0.1", port, world, rank == 0, timeout=limit)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=limit)
    dist.barrier()
    (folder / f"at.{rank}").touch()
    if rank == 0:
        gather(store, world)
    elif rank != leaves:
        bring(store, rank)


def gather(store: dist.Store, world: int) -> None:
    parts = [store.get(f"part/{rank}") for rank in range(1, world)]
    store.set("whole", b"".join(parts))


def bring(store: dist.Store, rank: int) -> None:
    store.set(f"part/{rank}", str(rank))
    store.get("whole")


if __name__ == "__main__":
    folder, port, leaves = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    mp.spawn(worker, args=(WORLD, folder, port, leaves), nprocs=WORLD)
