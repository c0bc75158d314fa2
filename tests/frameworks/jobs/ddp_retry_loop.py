"""Rank 1 tries again and again to read a batch, in an exception handler."""
# framework: ddp
# start: torchrun
# culprit: 1
# kinds: busy, not_entered
# frame: read|main

import torch
import torch.distributed as dist
from come import last_step
from torch.nn.parallel import DistributedDataParallel


def read(rank: int, step: int) -> torch.Tensor:
    while True:
        try:
            if rank == 1 and step == 4:
                raise ConnectionError("shard store: connection refused")
            return torch.randn(4, 8)
        except ConnectionError:
            for _ in range(1000):
                pass


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(8):
        if step == 4:
            last_step(rank)
        model(read(rank, step)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


main()
