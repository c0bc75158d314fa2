"""Processes that wait for a GPU in one way each.

hang.py CASE. It prints "ready" and its process id when nothing is left between it and its wait.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from benchmarks.gpu.processes import die_with_parent

_FOREVER = 1 << 60  # clock cycles of a kernel that does nothing else: years


def spin() -> None:
    """A kernel that does not finish."""
    import torch

    torch.cuda._sleep(_FOREVER)


def ready() -> None:
    """To whoever started this, perhaps by way of `hangdoctor run`."""
    print("ready", os.getpid(), flush=True)


def sleeps() -> None:
    """No GPU at all: what this section does where there is none."""
    ready()
    time.sleep(3600)


def item() -> None:
    """The host reads a number that the GPU has not computed."""
    import torch

    loss = torch.ones(1, device="cuda").sum()
    torch.cuda.synchronize()
    spin()
    ready()
    loss.item()


def synchronizes() -> None:
    """The host waits for all streams."""
    import torch

    spin()
    ready()
    torch.cuda.synchronize()


def computes() -> None:
    """Nothing is wrong: short kernels and reads of their results, without end."""
    import torch

    x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    total = float((x @ x).float().sum())
    ready()
    while True:
        total += train_step(x)


def train_step(x: Any) -> float:
    """One of them."""
    return float((x @ x).float().sum())


def ahead_of_all_reduce() -> None:
    """A group of one rank: its kernel does not finish, and an all_reduce is queued behind it."""
    tensor = _joined()
    import torch
    import torch.distributed as dist

    spin()
    dist.all_reduce(tensor)
    ready()
    torch.cuda.synchronize()


def two_ranks() -> None:
    """Two ranks that share the GPU: rank 1 never comes to the second all_reduce."""
    # NCCL refuses two ranks on one GPU of one host, so each says that it is a host of its own.
    os.environ["NCCL_HOSTID"] = f"rank{os.environ['RANK']}"
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    tensor = _joined()
    import torch
    import torch.distributed as dist

    if dist.get_rank() == 1:
        ready()
        load_batch()
    dist.all_reduce(tensor)
    ready()
    torch.cuda.synchronize()


def load_batch() -> None:
    """Where rank 1 is instead."""
    time.sleep(3600)


def _joined() -> Any:
    """A tensor of a rank whose group has done an all_reduce."""
    import torch
    import torch.distributed as dist

    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    tensor = torch.ones(1 << 20, device=device)
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    return tensor


CASES = {
    "sleeps": sleeps,
    "item": item,
    "synchronize": synchronizes,
    "computes": computes,
    "all_reduce": ahead_of_all_reduce,
    "two_ranks": two_ranks,
}

if __name__ == "__main__":
    die_with_parent()
    CASES[sys.argv[1]]()
