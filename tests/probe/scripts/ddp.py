"""Ranks under DistributedDataParallel, whose collectives no Python function makes.

stuck    rank 1 stays away from the sixth step
uneven   rank 1 has no sixth batch and goes on to what comes behind the loop
left     the same, and what comes there is everyone's
"""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from hangdoctor import probe
from hangdoctor.train.faults import acts

probe.install()  # nothing with HANGDOCTOR_DISABLE=1
torch.manual_seed(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
metrics = dist.new_group()
model = DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.AdamW(model.parameters())


def step():
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


for _ in range(5):
    step()
print("trained", flush=True)
if rank == 1 and sys.argv[1] == "stuck":
    acts.read_pipe()
if rank != 1 or sys.argv[1] == "stuck":
    step()
if sys.argv[1] == "left":
    dist.barrier()
dist.all_reduce(torch.ones(1), group=metrics)
