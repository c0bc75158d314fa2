"""DTensor: rank 2 sleeps, the others redistribute an activation."""
# framework: dtensor
# start: torchrun
# culprit: 2
# kinds: not_entered
# frame: read_prompt

import time

import torch
import torch.distributed as dist
from come import last_step
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor


def read_prompt(rank: int, step: int) -> None:
    if step == 3:
        last_step(rank)
        if rank == 2:
            time.sleep(3600)


def forward(weight, x):
    return (x @ weight).redistribute(placements=[Replicate()]).to_local().sum()


def main() -> None:
    mesh = init_device_mesh("cpu", (4,))
    weight = distribute_tensor(torch.randn(16, 16), mesh, [Shard(1)])
    x = distribute_tensor(torch.randn(4, 16), mesh, [Replicate()])
    for step in range(6):
        read_prompt(dist.get_rank(), step)
        forward(weight, x)


main()
