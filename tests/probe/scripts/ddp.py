"""Two ranks under DistributedDataParallel, whose collectives no Python function makes; rank 1 stays away from the sixth step."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from hangdoctor import probe

probe.install()
torch.manual_seed(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.AdamW(model.parameters())


def step():
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


for _ in range(5):
    step()
print("trained", flush=True)
if rank == 1:
    reader, _ = os.pipe()
    os.read(reader, 1)
step()
