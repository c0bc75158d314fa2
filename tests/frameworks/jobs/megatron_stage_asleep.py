"""Megatron-core, pipeline of two stages: rank 2 waits in its forward step for a file that never comes."""
# framework: megatron
# start: torchrun
# culprit: 2
# kinds: not_entered
# frame: load_mask|forward_step

import time
from pathlib import Path

import megatron_job
import torch
import torch.distributed as dist
from come import last_step

calls = 0


def load_mask(path: Path) -> torch.Tensor:
    while not path.exists():
        time.sleep(1)
    return torch.ones(8)


def forward_step(batches, stage):
    global calls
    calls += 1
    output = stage(next(batches))
    if dist.get_rank() == 2 and calls == 10:
        output = output * load_mask(Path("/nonexistent/mask"))
    return output, megatron_job.loss_of


def main() -> None:
    rank, stage = megatron_job.begin()
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
    for step in range(4):
        if step == 2:
            last_step(rank)
        megatron_job.forward_backward(forward_step, stage, 4)
        megatron_job.reduce_gradients(stage)
        optimizer.step()
        optimizer.zero_grad()


main()
