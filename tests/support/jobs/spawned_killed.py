"""Four ranks that torch.multiprocessing starts: the environment shows no rank. Rank 2 is killed by
SIGKILL outside any operation.

    spawned_killed.py PORT
"""

from __future__ import annotations

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def worker(rank: int, port: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    dist.init_process_group("gloo", rank=rank, world_size=4)
    for _ in range(3):
        dist.all_reduce(torch.ones(4))
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(3600)


if __name__ == "__main__":
    mp.spawn(worker, args=(sys.argv[1],), nprocs=4)
