"""Rank 2 swallows an exception of one batch and so skips a step; at the end it is one step ahead."""
# framework: accelerate
# start: torchrun
# culprit: 2
# kinds: order, not_entered, mismatch, end_stall
# frame: main

import torch
from accelerate import Accelerator
from come import last_step


def load(rank: int, step: int) -> torch.Tensor:
    if rank == 2 and step == 3:
        raise OSError("corrupt record")
    return torch.randn(4, 8)


def main() -> None:
    accelerator = Accelerator(cpu=True)
    rank = accelerator.process_index
    model = torch.nn.Linear(8, 8)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(6):
        try:
            batch = load(rank, step)
        except OSError:
            continue
        if step == 5:
            last_step(rank)
        accelerator.backward(model(batch).square().mean())
        optimizer.step()
        optimizer.zero_grad()
    accelerator.wait_for_everyone()


main()
