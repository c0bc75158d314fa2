"""DTensor: rank 0 alone asks for a full tensor to print it; the others are in the next forward."""
# framework: dtensor
# start: torchrun
# culprit: 0
# kinds: order, not_entered, mismatch
# frame: show

import torch
import torch.distributed as dist
from come import last_step
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor


def show(weight) -> None:
    print(weight.full_tensor().norm().item())


def forward(weight, x):
    y = x @ weight
    return y.redistribute(placements=[Replicate()]).to_local().sum()


def main() -> None:
    mesh = init_device_mesh("cpu", (4,))
    weight = distribute_tensor(torch.randn(16, 16), mesh, [Shard(0)])
    x = distribute_tensor(torch.randn(4, 16), mesh, [Shard(1)])
    for step in range(6):
        forward(weight, x)
        if step == 3:
            last_step(dist.get_rank())
            if dist.get_rank() == 0:
                show(weight)


main()
