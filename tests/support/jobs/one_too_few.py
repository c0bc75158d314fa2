"""Two of three ranks, which multiprocessing starts and which set their variables in Python: the environment of a
process shows neither rank nor world size, and they wait in init_process_group for the third.

    one_too_few.py FOLDER PORT
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch.distributed as dist
import torch.multiprocessing as mp


def worker(rank: int, folder: Path, port: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "3"}
    (folder / f"at.{rank}").touch()
    dist.init_process_group("gloo")


if __name__ == "__main__":
    mp.spawn(worker, args=(Path(sys.argv[1]), sys.argv[2]), nprocs=2)
