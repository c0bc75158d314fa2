"""Megatron-core: rank 3 finds an overflow, alone, and skips a reduction of gradients; it is at the last barrier first."""
# framework: megatron
# start: torchrun
# culprit: 3
# kinds: order, not_entered, mismatch
# frame: main

import megatron_job
import torch
import torch.distributed as dist
from come import last_step


def forward_step(batches, stage):
    return stage(next(batches)), megatron_job.loss_of


def overflows(rank: int, step: int) -> bool:
    return rank == 3 and step == 2


def train_step(rank: int, stage: megatron_job.Stage, step: int) -> None:
    megatron_job.forward_backward(forward_step, stage, 4)
    if not overflows(rank, step):
        megatron_job.reduce_gradients(stage)


def main() -> None:
    rank, stage = megatron_job.begin()
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
    for step in range(4):
        if step == 3:
            last_step(rank)
        train_step(rank, stage, step)
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()


main()
