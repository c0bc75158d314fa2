"""A small gloo job that fails in a chosen way on a chosen rank: its output is what `diagnose` reads.

    torchrun --nproc-per-node 4 failing_job.py KIND [RANK]

Every wait of the others ends by gloo's own time limit of a few seconds.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from hangdoctor.train.faults import acts

LIMIT = timedelta(seconds=float(os.environ.get("LIMIT_S", "4")))
STEPS, FAULT_STEP = int(os.environ.get("STEPS", "6")), 3


def load_batch(step: int) -> torch.Tensor:
    return torch.full((8,), float(step))


def fail(kind: str, step: int) -> torch.Tensor:
    """What the chosen rank does instead of its step."""
    if kind == "exception":
        raise ValueError(f"bad sample in shard 7 at step {step}")
    if kind == "missing_file":
        open("/data/shards/shard-0007.bin", "rb")  # noqa: PTH123, SIM115
    if kind == "kill":
        acts.kill()
    if kind == "segfault":
        acts.segfault()
    if kind == "exit":
        sys.exit(3)
    if kind == "sleep":
        time.sleep(3 * LIMIT.total_seconds())
    if kind == "shape":
        return torch.zeros(9)
    if kind == "skip":
        return load_batch(step + 1)
    return load_batch(step)


def train(kind: str, culprit: int) -> None:
    rank = dist.get_rank()
    for step in range(STEPS):
        mine = rank == culprit and step == FAULT_STEP
        batch = fail(kind, step) if mine else load_batch(step)
        if kind == "monitored":
            if mine:
                time.sleep(2 * LIMIT.total_seconds())
            dist.monitored_barrier(timeout=LIMIT, wait_all_ranks=True)
        if mine and kind == "other_op":
            dist.broadcast(batch, src=0)
        elif not (mine and kind == "skip"):
            dist.all_reduce(batch)
        if STEPS > 1000:
            time.sleep(0.05)
        if rank == 0:
            print(f" iteration {step + 1:8d}/{STEPS:8d} | loss: {1 / (step + 1):.4f}", flush=True)


def main() -> None:
    kind, culprit = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else -1
    rank = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")))
    if kind == "late" and rank == culprit:
        time.sleep(3 * LIMIT.total_seconds())
    if kind == "early" and rank == culprit:
        raise FileNotFoundError(2, "No such file or directory", "/data/config.json")
    dist.init_process_group("gloo", timeout=LIMIT)
    train(kind, culprit)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
