"""FSDP2: the norm of a weight, which is a DTensor, is printed by rank 0 alone."""
# framework: fsdp2
# start: torchrun
# culprit: 0
# kinds: order, not_entered, mismatch
# frame: train_step

import torch
import torch.distributed as dist
from come import last_step
from torch.distributed.fsdp import fully_shard


def train_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    model(torch.randn(4, 16)).square().mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if step == 3:
        last_step(dist.get_rank())
        if dist.get_rank() == 0:
            print("norm", model[0].weight.full_tensor().norm().item())
    dist.barrier()
    optimizer.step()
    optimizer.zero_grad()


def main() -> None:
    dist.init_process_group("gloo")
    model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(3)])
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        train_step(model, optimizer, step)


main()
