"""FSDP2: rank 1 skips a step with a loss that it takes for NaN, and comes to the last barrier alone."""
# framework: fsdp2
# start: torchrun
# culprit: 1
# kinds: order, not_entered, mismatch, end_stall
# frame: main

import torch
import torch.distributed as dist
from come import last_step
from torch.distributed.fsdp import fully_shard


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(3)])
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        if step == 4:
            last_step(rank)
        batch = torch.randn(4, 16)
        if rank == 1 and step == 2:
            batch[0] = float("nan")
        if batch.isnan().any():
            continue
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()


main()
