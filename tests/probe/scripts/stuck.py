"""Three ranks: 0 and 2 wait in an all_reduce for 1, which says so and then reads a pipe that no one writes to."""

import sys

import torch
import torch.distributed as dist

from hangdoctor import probe
from hangdoctor.train.faults import acts

probe.layout(dp=3, pp=1, tp=1)
dist.init_process_group("gloo")
rank = dist.get_rank()
handle = None
for step in range(5):
    probe.iteration(step)
    probe.micro_batch(step * 2)
    dist.all_reduce(torch.ones(2))
with probe.phase("evaluate"):
    pass
probe.phase("forward")
if sys.argv[1] == "raise" and rank == 0:
    raise RuntimeError("the loss is not a number")
if rank == 1:
    print("stuck", flush=True)
    acts.read_pipe()
elif rank == 0:
    handle = dist.all_reduce(torch.ones(3, 2), op=dist.ReduceOp.MAX, async_op=True)
    print("waiting", flush=True)
    handle.wait()
else:
    print("entering", flush=True)
    dist.all_reduce(torch.ones(3, 2), op=dist.ReduceOp.MAX)
