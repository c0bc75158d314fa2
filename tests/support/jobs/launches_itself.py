"""Two ranks as Lightning's own launcher starts them: the first starts the other one by the same command with
LOCAL_RANK, and no process has RANK. Rank 1 does not come to the third all_reduce.

    launches_itself.py FOLDER PORT
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist


def validate(folder: Path) -> None:
    (folder / "at.1").touch()
    time.sleep(3600)


def train(rank: int, folder: Path, port: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    dist.init_process_group("gloo", rank=rank, world_size=2)
    for step in range(3):
        if rank == 1 and step == 2:
            validate(folder)
        dist.all_reduce(torch.ones(4))
        if step == 1:
            (folder / f"at.{rank}").touch()


if __name__ == "__main__":
    place, number = Path(sys.argv[1]), int(os.environ.get("LOCAL_RANK", "0"))
    if number == 0:
        more = {"LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
        more["MASTER_PORT"] = sys.argv[2]
        subprocess.Popen([sys.executable, *sys.argv], env=os.environ | more)
    train(number, place, sys.argv[2])
