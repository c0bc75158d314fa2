"""A rank of torchrun that ends with exit code 0 where the others go on: they wait for a key of it,
or they need nothing of it any more.

    left_early.py FOLDER WHO_ENDS wait|train
"""

from __future__ import annotations

import datetime
import itertools
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

FOLDER, ENDS, MANNER = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]


def train(others: dist.ProcessGroup | None) -> None:
    weights = torch.ones(200, 200)
    for step in itertools.count():
        time.sleep(0.01 + step % 2 / 100)
        weights = (weights @ weights).softmax(dim=1)
        dist.all_reduce(weights, group=others)


if __name__ == "__main__":
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=20))
    rank, world = dist.get_rank(), dist.get_world_size()
    others = dist.new_group([n for n in range(world) if n != ENDS])
    dist.barrier()
    (FOLDER / f"at.{rank}").write_text(str(os.getpid()))
    if rank == ENDS:
        os._exit(0)
    if MANNER == "train":
        train(others)
    dist.distributed_c10d._get_default_store().get(f"done/{ENDS}")
