"""A section of `benchmarks.gpu` whose units go wrong, each in its own way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.gpu.options import Options


def units(options: Options) -> list[str]:
    """All that can be asked for."""
    return ["fine", "hangs", "last"]


def measure(unit: str, options: Options) -> Iterator[dict[str, Any]]:
    """A row with its process, then what the unit is called."""
    row: dict[str, Any] = {"pid": os.getpid()}
    if unit == "hangs":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
        row["child"] = child.pid
    yield row
    if unit == "raises":
        raise ValueError("no such kernel")
    if unit == "out of memory":
        raise RuntimeError("CUDA out of memory. Tried to allocate 96.00 GiB")
    if unit == "poisoned":
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    if unit == "crashes":
        print("free(): invalid pointer", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if unit == "hangs":
        time.sleep(3600)
