"""What one rank does in a test: a timed all_reduce, or a test of its device alone.

Runs in a process that was forked from the node's server, which has imported torch. The only file of
the package outside of the training that imports it.
"""

from __future__ import annotations

import datetime
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import fabric
from .device_test import memory_test, multiply_test
from .words import Order, Word

Emit = Callable[[Word], None]
_REPEATS = 3
_MATRIX_CPU, _MATRIX_GPU = 512, 8192  # side of the square matrices
_MEMORY_CPU = 64 << 20  # bytes
_MEMORY_SHARE = 0.8  # of a GPU's free memory


def load() -> int:
    """Import torch; the number of GPUs that it can use.

    Raises:
        ImportError: there is no torch, or it does not fit this machine.
    """
    import torch

    # Counted by NVML, where it can be: a forked process cannot use CUDA once its parent has.
    return int(torch.cuda.device_count())


def run(order: Order, rank: int, device: int, emit: Emit) -> None:
    """Do what is ordered; `device` is -1 for the CPU. Errors become a word."""
    try:
        if order.what == "device":
            _test_device(order, rank, device, emit)
        else:
            _all_reduce(order, rank, device, emit)
        emit(Word("done", order.trial, rank))
    except Exception as error:
        lines = str(error).strip().splitlines()
        said = f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]
        emit(Word("failed", order.trial, rank, text=said))


def _place(device: int) -> Any:
    import torch

    if device < 0:
        torch.set_num_threads(1)
        return torch.device("cpu")
    torch.cuda.set_device(device)
    return torch.device("cuda", device)


def _test_device(order: Order, rank: int, device: int, emit: Emit) -> None:
    import torch

    place = _place(device)
    side, size = _MATRIX_CPU, _MEMORY_CPU
    if device >= 0:
        side = _MATRIX_GPU
        size = int(_MEMORY_SHARE * torch.cuda.mem_get_info(place)[0])
    emit(Word("started", order.trial, rank))
    flops = multiply_test(torch, place, side)
    bandwidth = memory_test(torch, place, size)
    values = {"TFLOP/s": flops / 1e12, "GB/s": bandwidth / 1e9, "GB": size / 1e9}
    emit(Word("device", order.trial, rank, values=values))


def _all_reduce(order: Order, rank: int, device: int, emit: Emit) -> None:
    import torch.distributed as dist

    place = _place(device)
    limit = datetime.timedelta(seconds=order.seconds)
    emit(Word("started", order.trial, rank))
    log = _nccl_log() if device >= 0 else None
    master = rank == 0
    store = dist.TCPStore(
        order.address,
        0 if master else order.port,
        order.world,
        is_master=master,
        timeout=limit,
        wait_for_workers=False,
    )
    if master:
        emit(Word("listens", order.trial, rank, port=store.port))
    emit(Word("store", order.trial, rank))
    backend = "gloo" if device < 0 else "nccl"
    dist.init_process_group(backend, store=store, rank=rank, world_size=order.world, timeout=limit)
    dist.barrier()
    emit(Word("joined", order.trial, rank))
    for size in order.sizes:
        seconds = _timed(dist, place, size, order.world)
        emit(Word("size", order.trial, rank, size=size, seconds=seconds))
    if log is not None:
        emit(Word("fabric", order.trial, rank, text=fabric.transport_line(log.read_text())))
    dist.barrier()


def _timed(dist: Any, place: Any, size: int, world: int) -> float:
    """Seconds of the fastest of some all_reduces of `size` bytes.

    Raises:
        ArithmeticError: the sum is wrong.
    """
    import torch

    best = float("inf")
    for _ in range(1 + _REPEATS):
        values = torch.full((max(1, size // 4),), float(dist.get_rank() + 1), device=place)
        dist.all_reduce(values[:1].clone())  # all begin together
        _finish(torch, place)
        begin = time.perf_counter()
        dist.all_reduce(values)
        _finish(torch, place)
        best = min(best, time.perf_counter() - begin)
        expected = world * (world + 1) / 2
        if not bool((values == expected).all()):
            wrong = int((values != expected).sum())
            raise ArithmeticError(f"wrong sum in {wrong} of {values.numel()} elements")
    return best


def _finish(torch: Any, place: Any) -> None:
    if place.type == "cuda":
        torch.cuda.synchronize(place)


def _nccl_log() -> Path:
    """Have NCCL say which network it takes, in a file of its own."""
    fd, name = tempfile.mkstemp(prefix="hangdoctor-nccl-")
    os.close(fd)
    os.environ["NCCL_DEBUG"] = "INFO"
    os.environ["NCCL_DEBUG_SUBSYS"] = "INIT,NET"
    os.environ["NCCL_DEBUG_FILE"] = name
    return Path(name)
