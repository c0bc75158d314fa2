"""Would notice memory, time or results that change with very many groups, operations, shapes, handles and steps."""

import os
import time

import torch
import torch.distributed as dist
import witness
from torch.testing._internal.distributed.fake_pg import FakeStore

OPERATIONS = int(os.environ.get("HARMLESS_OPERATIONS", "20000"))
GROUPS = int(os.environ.get("HARMLESS_GROUPS", "1000"))

dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=64)
began = time.process_time()
groups = [dist.new_group([0, 1 + n % 60]) for n in range(GROUPS)]
witness.note("groups")
t = torch.ones(1)
for group in groups:
    dist.all_reduce(t, group=group)
print(len({id(g) for g in groups}), t)
for group in groups[: GROUPS // 2]:
    dist.destroy_process_group(group)
del groups
witness.note("groups gone")
optimizer = torch.optim.SGD([torch.nn.Parameter(t.clone())], lr=0.1)
for n in range(OPERATIONS):
    dist.all_reduce(t)
    if n % 100 == 0:
        optimizer.zero_grad()
        optimizer.param_groups[0]["params"][0].sum().backward()
        optimizer.step()
witness.note("operations")
for n in range(3000):
    dist.broadcast(torch.empty(1 + n), 0)
kept = [dist.all_reduce(t, async_op=True) for _ in range(3000)]
print(all(k.wait() for k in kept), optimizer.param_groups[0]["params"][0].item())
for n in range(2000):
    exec(compile(f"def f{n}(): dist.all_reduce(t)\nf{n}()", f"file {n}", "exec"))
witness.note("end")
seconds = time.process_time() - began
print("in time" if seconds < float(os.environ.get("HARMLESS_SECONDS", "120")) else seconds)
