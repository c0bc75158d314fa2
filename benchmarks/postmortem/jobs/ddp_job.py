"""DistributedDataParallel with a data loader of worker processes and a checkpoint by rank 0.

ddp_job.py KIND RANK WHERE      WHERE: loader, worker, forward, gradient, step, save
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import ends
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

KIND, CULPRIT, WHERE = sys.argv[1], int(sys.argv[2]), sys.argv[3]
ME = int(os.environ["RANK"])


def at(place: str) -> None:
    """Fail here, where this rank is to."""
    if place == WHERE and ME == CULPRIT:
        ends.strike(KIND)


class Numbers(Dataset[torch.Tensor]):
    """Forty small samples; the worker of the chosen rank fails at one of them."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 12:
            at("worker")
        return torch.randn(16, generator=torch.Generator().manual_seed(index))


class Model(torch.nn.Module):
    """Two layers, and a place to fail between them."""

    def __init__(self) -> None:
        super().__init__()
        self.one = torch.nn.Linear(16, 32)
        self.two = torch.nn.Linear(32, 1)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        hidden = self.one(x).relu()
        if self.calls == 3:
            at("forward")
            if WHERE == "gradient":
                hidden.register_hook(lambda grad: at("gradient"))
        return self.two(hidden).mean()


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Numbers(), batch_size=4, num_workers=1 if WHERE == "worker" else 0)
    for number, batch in enumerate(loader):
        if number == 3:
            at("loader")
        optimizer.zero_grad()
        model(batch).backward()
        optimizer.step()
        if number == 4:
            at("step")
            if ME == 0:
                at("save")
                torch.save(model.module.state_dict(), Path(os.environ["HUNG"]).with_name("w.pt"))
            dist.barrier()
    dist.destroy_process_group()


main()
