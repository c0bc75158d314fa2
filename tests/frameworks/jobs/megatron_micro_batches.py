"""Megatron-core, pipeline of two stages: rank 1 computes three micro-batches of four; it is at the last barrier first."""
# framework: megatron
# start: torchrun
# culprit: 1
# kinds: p2p_unmatched, order, not_entered, mismatch
# frame: main
# undecided: bare

import megatron_job
import torch
import torch.distributed as dist
from come import last_step


def forward_step(batches, stage):
    return stage(next(batches)), megatron_job.loss_of


def train_step(rank: int, stage: megatron_job.Stage, step: int) -> None:
    count = 3 if rank == 1 and step == 2 else 4
    megatron_job.forward_backward(forward_step, stage, count)
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
