"""Rank 3's shard has fewer batches; it is at the barrier after the epoch, the others reduce gradients."""
# framework: accelerate
# start: torchrun
# culprit: 3
# kinds: order, not_entered, mismatch, end_stall
# frame: main

import torch
from accelerate import Accelerator
from come import last_step


class Shard(torch.utils.data.IterableDataset):
    def __init__(self, rank: int) -> None:
        self.batches = 3 if rank == 3 else 4

    def __iter__(self):
        for _ in range(self.batches):
            yield torch.randn(4, 8)


def main() -> None:
    accelerator = Accelerator(cpu=True)
    rank = accelerator.process_index
    model = torch.nn.Linear(8, 8)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    loader = torch.utils.data.DataLoader(Shard(rank), batch_size=None)
    for epoch in range(2):
        for step, batch in enumerate(loader):
            if epoch == 1 and step == 2:
                last_step(rank)
            accelerator.backward(model(batch).square().mean())
            optimizer.step()
            optimizer.zero_grad()
        if epoch == 0:
            loader = torch.utils.data.DataLoader(Shard(rank), batch_size=None)
            if rank == 3:
                accelerator.backward(model(torch.randn(4, 8)).square().mean())
        accelerator.wait_for_everyone()


main()
