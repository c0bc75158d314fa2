"""Four ranks of DistributedDataParallel that evaluate after the sixth step: `ddp_job.py FOLDER FAULT`.

`empty`: rank 3 has no validation data and returns before the collective. `only_first`: rank 0 alone
evaluates. `stops`: rank 1 leaves the loop after it. Each writes `at.<rank>` before the call that it will hang in.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

folder, fault = Path(sys.argv[1]), sys.argv[2]
rank = int(os.environ["RANK"])


def evaluates(step):
    return step == 3 if fault == "stops" else step == 6 and (rank == 0 or fault == "empty")


def evaluate(shard, step):
    if not shard:
        return float("nan")
    if step >= 6:
        (folder / f"at.{rank}").touch()
    parts = [torch.zeros(2) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, torch.ones(2))
    return torch.stack(parts).sum().item()


def train_step(model, optimizer, step):
    if step == 7:
        (folder / f"at.{rank}").touch()
    model(torch.ones(8, 16)).sum().backward()
    optimizer.step()


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    dist.barrier()
    for step in range(1, 10):
        train_step(model, optimizer, step)
        if evaluates(step):
            evaluate([] if rank == 3 and fault == "empty" else [1], step)
        if fault == "stops" and rank == 1 and step == 6:
            break
    evaluate([1], step)


main()
