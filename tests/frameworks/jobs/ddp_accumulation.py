"""Rank 3 accumulates over 3 micro-batches where the others take 2: it reduces gradients less often."""
# framework: ddp
# start: torchrun
# culprit: 3
# kinds: order, not_entered, mismatch, end_stall
# frame: main

import contextlib

import torch
import torch.distributed as dist
from come import last_step
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    every = 3 if rank == 3 else 2
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for micro in range(1, 13):
        if micro == 12:
            last_step(rank)
        sync = micro % every == 0
        with contextlib.nullcontext() if sync else model.no_sync():
            if rank != 3 and micro == 10:
                last_step(rank)
            model(torch.randn(4, 8)).square().mean().backward()
        if sync:
            optimizer.step()
            optimizer.zero_grad()
    dist.barrier()


main()
