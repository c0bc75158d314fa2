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


def masks() -> None:
    """The host has to know how many are kept: an index that waits and does not say so."""
    import torch

    losses = torch.rand(1000, device="cuda")
    kept = losses > 0.5
    torch.cuda.synchronize()
    spin()
    ready()
    print(losses[kept].shape)


def waits_in_jax() -> None:
    """JAX: a loop on the device that does not end."""
    import jax
    from jax import lax

    x = jax.numpy.ones(4)
    loop = jax.jit(lambda x: lax.while_loop(lambda v: v[0] >= 0, lambda v: v * 0.5, x))
    endless = loop.lower(x).compile()
    ready()
    endless(x).block_until_ready()


def waits_in_cupy() -> None:
    """CuPy: a kernel of its own that does not end."""
    import cupy

    source = 'extern "C" __global__ void endless(volatile int *go) { while (*go == 0) {} }'
    go = cupy.zeros(1, dtype=cupy.int32)
    cupy.RawKernel(source, "endless")((1,), (1,), (go,))
    ready()
    cupy.cuda.Stream.null.synchronize()


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


def behind_a_kernel() -> None:
    """All ranks in one all_reduce; on the last it is queued behind a kernel that does not finish."""
    tensor = _joined()
    import torch
    import torch.distributed as dist

    if dist.get_rank() == dist.get_world_size() - 1:
        spin()
    dist.all_reduce(tensor)
    ready()
    torch.cuda.synchronize()


def two_ranks() -> None:
    """Two ranks that share the GPU: rank 1 never comes to the second all_reduce."""
    _without_rank_1(_joined())


def skips() -> None:
    """Four ranks in two pairs: in the fourth step rank 2 leaves out the all_reduce of its pair."""
    tensor = _joined()
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    for step in range(4):
        if (rank, step) != (2, 3):
            dist.all_reduce(torch.ones(8, device=tensor.device), group=pairs[rank // 2])
        dist.all_reduce(tensor)
        if step == 3:
            ready()
        torch.cuda.synchronize()


def shards() -> None:
    """FSDP2 over three ranks: rank 2 has one batch fewer, and goes on to average the losses."""
    device = _joined().device
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    rank = dist.get_rank()
    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256, device=device) for _ in range(3)))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    total = torch.zeros(1, device=device)
    for step in range(4):
        if (rank, step) == (2, 3):
            break
        if step == 3:
            ready()
        loss = model(torch.randn(8, 256, device=device)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
        torch.cuda.synchronize()
    if rank == 2:
        ready()
    dist.all_reduce(total)
    print(float(total))


def replicates() -> None:
    """DDP over two ranks, its all_reduce issued from C++: rank 1 gets no third batch."""
    device = _joined().device
    import queue

    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(torch.nn.Linear(256, 256, device=device), device_ids=[0])
    batches: queue.Queue[Any] = queue.Queue()
    for _ in range(3 if dist.get_rank() == 0 else 2):
        batches.put(torch.randn(8, 256))
    for step in range(3):
        if step == 2:
            ready()
        model(batches.get().to(device)).square().mean().backward()
        torch.cuda.synchronize()


def pipeline() -> None:
    """Three stages: the middle one is stopped by a signal before its fourth send."""
    tensor = _joined()
    import signal

    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    for step in range(4):
        if step == 3:
            ready()
        if rank > 0:
            dist.recv(tensor, rank - 1)
        if (rank, step) == (1, 3):
            os.kill(os.getpid(), signal.SIGSTOP)
        if rank < 2:
            dist.send(tensor, rank + 1)
        torch.cuda.synchronize()


def times_out() -> None:
    """Three ranks: rank 1 never comes to the second all_reduce, and NCCL's watchdog ends the rest."""
    _without_rank_1(_joined(timeout_s=10))


def _without_rank_1(tensor: Any) -> None:
    """An all_reduce that rank 1 never comes to."""
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


def _joined(timeout_s: float = 3600) -> Any:
    """A tensor of a rank whose group has done an all_reduce."""
    if int(os.environ["WORLD_SIZE"]) > 1:
        # NCCL refuses two ranks on one GPU of one host, so each says that it is a host of its own.
        os.environ["NCCL_HOSTID"] = f"rank{os.environ['RANK']}"
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    limit = timedelta(seconds=timeout_s)
    dist.init_process_group("nccl", device_id=device, timeout=limit)
    tensor = torch.ones(1 << 20, device=device)
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    return tensor


CASES = {
    "sleeps": sleeps,
    "item": item,
    "synchronize": synchronizes,
    "computes": computes,
    "behind": behind_a_kernel,
    "two_ranks": two_ranks,
    "masks": masks,
    "jax": waits_in_jax,
    "cupy": waits_in_cupy,
    "skips": skips,
    "shards": shards,
    "replicates": replicates,
    "pipeline": pipeline,
    "times_out": times_out,
}

if __name__ == "__main__":
    die_with_parent()
    CASES[sys.argv[1]]()
