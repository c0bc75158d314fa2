"""FSDP2: rank 2 sleeps in its own data function."""
# framework: fsdp2
# start: torchrun
# culprit: 2
# kinds: not_entered
# frame: next_batch

import time

import torch
import torch.distributed as dist
from come import last_step
from torch.distributed.fsdp import fully_shard


def next_batch(rank: int, step: int) -> torch.Tensor:
    if step == 3:
        last_step(rank)
        if rank == 2:
            time.sleep(3600)
    return torch.randn(4, 16)


def main() -> None:
    dist.init_process_group("gloo")
    model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(3)])
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        model(next_batch(dist.get_rank(), step)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


main()
