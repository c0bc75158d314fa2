"""Two ranks that multiprocessing starts: the environment shows no rank. Rank 1 does not come to the
third all_reduce.

    spawned_job.py FOLDER PORT [RANK]

With RANK it is that rank, and something else starts the other.
With FOLDER/wait the ranks join the group when FOLDER/go is there.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def evaluate(folder: Path) -> None:
    (folder / "at.1").touch()
    time.sleep(3600)


def worker(rank: int, folder: Path, port: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    (folder / f"begun.{rank}").touch()
    while (folder / "wait").exists() and not (folder / "go").exists():
        time.sleep(0.05)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    for step in range(3):
        if rank == 1 and step == 2:
            evaluate(folder)
        dist.all_reduce(torch.ones(4))
        if step == 1:
            (folder / f"at.{rank}").touch()


if __name__ == "__main__":
    arguments = (Path(sys.argv[1]), sys.argv[2])
    if len(sys.argv) > 3:
        worker(int(sys.argv[3]), *arguments)
    else:
        mp.spawn(worker, args=arguments, nprocs=2)
