"""Triton where it is installed; a stand-in for its decorators where it is not, so that the kernels'
files import.
"""

from __future__ import annotations

import os
from typing import Any

import torch

BLOCK = 1024

try:
    import triton
    import triton.language as tl

    AVAILABLE = ""
except ImportError as error:
    AVAILABLE = f"triton is not installed ({error}): pip install 'triton>=3.7'"

    class _Absent:
        """Takes the place of `triton` and `triton.language` in signatures and decorators."""

        constexpr = None

        @staticmethod
        def jit(function: Any) -> Any:
            return function

    triton = tl = _Absent()


@triton.jit
def places(block: tl.constexpr):
    """Elements of this program of a flat tensor, in 64 bits: a partition of an optimizer alone may
    have more than 2^31.
    """
    return tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)


def interpreted() -> bool:
    """Whether kernels run in Triton's interpreter, on CPU tensors: TRITON_INTERPRET=1 before the
    first import.
    """
    return os.environ.get("TRITON_INTERPRET", "") == "1"


def unavailable(device: torch.device) -> str:
    """Why Triton kernels cannot run on this device; empty where they can."""
    if AVAILABLE:
        return AVAILABLE
    if device.type != "cuda" and not interpreted():
        return "no GPU, and TRITON_INTERPRET=1 is not set"
    return ""


def grid(elements: int, block: int = BLOCK) -> tuple[int]:
    """Programs to launch: one for each block of elements."""
    return ((elements + block - 1) // block,)


def next_power_of_two(n: int) -> int:
    """The smallest power of two that is at least `n`; Triton's blocks have such sizes."""
    return 1 << max(0, n - 1).bit_length()


def warps(columns: int) -> int:
    """Warps a program for rows of this many columns."""
    if columns < 2048:
        return 4
    return 8 if columns < 8192 else 16
