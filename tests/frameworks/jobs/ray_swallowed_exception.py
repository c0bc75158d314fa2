"""Ray Train: rank 2 swallows an exception of one batch and so skips a step; it is at the last barrier first."""
# framework: ray
# start: python
# culprit: 2
# kinds: order, not_entered, mismatch, end_stall
# frame: train_loop

import ray_job
import torch
import torch.distributed as dist
from come import last_step
from ray.train.torch import prepare_model


def load(rank: int, step: int) -> torch.Tensor:
    if rank == 2 and step == 3:
        raise OSError("corrupt record")
    return torch.randn(4, 8)


def train_loop() -> None:
    rank = ray_job.rank()
    model = prepare_model(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        try:
            batch = load(rank, step)
        except OSError:
            continue
        if step == 5:
            last_step(rank)
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()


ray_job.train(train_loop)
