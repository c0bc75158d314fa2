"""How long something takes on the device, with a cold cache."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from .options import Options

_WARM_CALLS = 3  # what is compiled, tuned and allocated
_MEASURED_MS = 60.0
_FEWEST, _MOST = 5, 30  # calls
_CALLS_ON_CPU = 3
_CACHE_BYTES = 256 << 20  # several times what a GPU's cache holds
_EMPTIES = "FillFunctor<short>"  # the kernel that fills it, in its name


def milliseconds(call: Callable[[], Any], options: Options) -> float:
    """Milliseconds of one call. On a GPU the mean of what its kernels and copies took, by the driver's
    own record: what the host needs to launch them is not in it, since a training hides that behind
    other work. The cache is emptied before each call.
    """
    if options.on_gpu:
        return _on_device(call)
    times = []
    for _ in range(1 if options.smoke else _CALLS_ON_CPU):
        began = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times)


def _on_device(call: Callable[[], Any]) -> float:
    for _ in range(_WARM_CALLS):
        call()
    torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    torch.cuda.synchronize()
    about = 1000 * (time.perf_counter() - began)
    calls = max(_FEWEST, min(_MOST, int(_MEASURED_MS / about)))
    cold = torch.empty(_CACHE_BYTES // 2, dtype=torch.int16, device="cuda")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(calls):
            cold.fill_(1)
            call()
        torch.cuda.synchronize()
    us = [e.self_device_time_total for e in profiler.key_averages() if _EMPTIES not in e.key]
    if not sum(us):
        raise RuntimeError("the profiler has seen no kernel: is CUPTI allowed on this machine?")
    return float(sum(us)) / calls / 1000


def wait(options: Options) -> None:
    """Until the device has done all that it was given: its errors show here."""
    if options.on_gpu:
        torch.cuda.synchronize()
