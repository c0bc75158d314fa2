"""What this machine is, and the two ceilings: matrix products and copies."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from .options import Options
from .timing import milliseconds

# m x n x k of a product; the second is the output projection of the 1.3B model.
PRODUCTS = {"8192x8192x8192": (8192, 8192, 8192), "8192x50304x2048": (8192, 50304, 2048)}
SMALL = {"64x64x64": (64, 64, 64)}
COPY_BYTES, SMALL_COPY_BYTES = 2 << 30, 1 << 20
_PACKAGES = ("torch", "triton", "deepspeed", "liger-kernel", "flash-attn", "nvidia-nccl-cu13")
_FIELDS = (
    "name,driver_version,memory.total,power.limit,enforced.power.limit,ecc.mode.current,"
    "clocks.max.sm,clocks.max.mem,clocks.sm,clocks.mem,temperature.gpu,persistence_mode,pcie.link.gen.current"
)


def units(options: Options) -> list[str]:
    """Names of what is measured."""
    products = PRODUCTS if options.on_gpu else SMALL
    return ["machine", "copy", *(f"product {name}" for name in products)]


def measure(unit: str, options: Options) -> Iterator[dict[str, Any]]:
    """Rows of one unit."""
    if unit == "machine":
        yield from machine(options)
    elif unit == "copy":
        yield copy(options)
    else:
        yield product(unit.removeprefix("product "), options)
        if options.on_gpu:
            clock = queried("clocks.sm") or ["unknown"]
            yield {"what": f"clocks.sm after {unit}", "value": clock[0]}


def machine(options: Options) -> Iterator[dict[str, Any]]:
    """Versions and settings, one a row."""
    yield {"what": "python", "value": sys.version.split()[0]}
    yield {"what": "platform", "value": platform.platform()}
    for package in _PACKAGES:
        try:
            yield {"what": package, "value": version(package)}
        except PackageNotFoundError:
            yield {"what": package, "value": "not installed"}
    if not options.on_gpu:
        yield {"what": "name", "value": platform.processor() or platform.machine()}
        return
    if not torch.cuda.is_available():
        raise RuntimeError("torch sees no GPU: --device cpu --smoke runs without one")
    yield {"what": "cuda", "value": torch.version.cuda}
    yield {"what": "nccl", "value": ".".join(map(str, torch.cuda.nccl.version()))}
    properties = torch.cuda.get_device_properties(0)
    yield {"what": "multiprocessors", "value": properties.multi_processor_count}
    yield {"what": "compute capability", "value": f"{properties.major}.{properties.minor}"}
    yield from settings()


def settings() -> Iterator[dict[str, Any]]:
    """What nvidia-smi says of the GPU's clocks, power limit and ECC."""
    values = queried(_FIELDS)
    if not values:
        yield {"what": "name", "value": torch.cuda.get_device_name(0)}
        yield {"what": "nvidia-smi", "value": "no answer"}
        return
    for what, value in zip(_FIELDS.split(","), values, strict=False):
        yield {"what": what, "value": value}


def queried(fields: str) -> list[str]:
    """Fields of the first GPU by nvidia-smi; none where it does not answer."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    words = [program, f"--query-gpu={fields}", "--format=csv,noheader", "--id=0"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [] if done.returncode else [value.strip() for value in done.stdout.split(",")]


def copy(options: Options) -> dict[str, Any]:
    """GB/s of a copy on the device, each byte counted as read and as written."""
    size = COPY_BYTES if options.on_gpu else SMALL_COPY_BYTES
    source = torch.randint(-100, 100, (size,), dtype=torch.int8, device=options.device)
    target = torch.empty_like(source)
    ms = milliseconds(lambda: target.copy_(source), options)
    return {"what": "copy", "ms": ms, "gb_per_s": 2 * size / ms / 1e6}


def product(name: str, options: Options) -> dict[str, Any]:
    """TFLOP/s of a bf16 product of random matrices: zeros would be faster."""
    m, n, k = (PRODUCTS if options.on_gpu else SMALL)[name]
    left = torch.randn(m, k, device=options.device, dtype=torch.bfloat16)
    right = torch.randn(n, k, device=options.device, dtype=torch.bfloat16)
    ms = milliseconds(lambda: left @ right.T, options)
    return {"what": name, "ms": ms, "tflops": 2 * m * n * k / ms / 1e9}
