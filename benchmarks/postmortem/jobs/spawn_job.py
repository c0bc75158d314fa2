"""Ranks that mp.spawn starts, without any variable that says who they are.

spawn_job.py WORLD KIND RANK TURN
"""

from __future__ import annotations

import sys

import ends
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD, KIND, CULPRIT, TURN = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])


def work(place: int, port: str) -> None:
    rank = WORLD - 1 - place  # the last one started is rank 0
    if rank == CULPRIT and TURN == 0:
        ends.strike(KIND)
    store = dist.TCPStore("127.0.0.1", int(port), WORLD, is_master=rank == 0)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=WORLD)
    for turn in range(1, 7):
        objects = [None] * WORLD
        dist.all_gather_object(objects, {"rank": rank, "turn": turn})
        if rank == CULPRIT and turn == TURN:
            ends.strike(KIND)
        dist.all_reduce(torch.ones(2))
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, args=(sys.argv[5],), nprocs=WORLD)
