"""How long something takes on the device: the median of many calls, with a cold cache."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from .options import Options

_WARM_MS, _MEASURED_MS = 20, 80
_CALLS_ON_CPU = 3


def milliseconds(call: Callable[[], Any], options: Options) -> float:
    """Median milliseconds of one call; on a GPU by its own events, its cache emptied in between."""
    if options.on_gpu:
        from triton.testing import do_bench

        found: float = do_bench(call, warmup=_WARM_MS, rep=_MEASURED_MS, return_mode="median")
        return found
    times = []
    for _ in range(1 if options.smoke else _CALLS_ON_CPU):
        began = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times)


def wait(options: Options) -> None:
    """Until the device has done all that it was given: its errors show here."""
    if options.on_gpu:
        torch.cuda.synchronize()
