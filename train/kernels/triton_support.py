"""Triton where it is installed; a stand-in for its decorators where it is not, so that the kernels'
files import.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

BLOCK = 1024
# Milliseconds that one candidate of `tuned` is warmed up and timed, beside its compilation.
_WARM_UP, _TIMED = 5, 20

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


Candidate = tuple[dict[str, int], int]  # block sizes, warps
# Of kernels that go over a flat tensor.
ELEMENTWISE: tuple[Candidate, ...] = (
    ({"block": 1024}, 4),
    ({"block": 2048}, 4),
    ({"block": 2048}, 8),
    ({"block": 4096}, 8),
)


class _First:
    """A kernel with the block sizes of its first candidate, launched as a tuned one is."""

    def __init__(self, kernel: Any, sizes: dict[str, int]) -> None:
        self.kernel, self.sizes = kernel, sizes

    def __getitem__(self, where: Any) -> Callable[..., Any]:
        def launch(*args: Any, **options: Any) -> Any:
            return self.kernel[where](*args, **options, **self.sizes)

        return launch


def tuned(
    candidates: Sequence[Candidate], key: Sequence[str], in_place: Sequence[str] = ()
) -> Callable[[Any], Any]:
    """Decorates a kernel: which of a few block sizes is fastest is measured at the first launch with
    other values of `key`; in the interpreter and without Triton the first one is taken.

    For kernels whose every element is made alone, and for no other: where block sizes change the
    order of a sum, ranks that measure different winners would hold different bits of what they
    should hold alike, and no run would repeat another. `key` names no count of rows: a batch that
    grows measures nothing again. `in_place`: arguments that the timing must put back.
    """

    def decorate(kernel: Any) -> Any:
        if AVAILABLE or interpreted():
            return _First(kernel, candidates[0][0])
        return triton.autotune(
            configs=[triton.Config(sizes, num_warps=w) for sizes, w in candidates],
            key=list(key),
            restore_value=list(in_place) or None,
            do_bench=_timed,
        )(kernel)

    return decorate


def _timed(call: Callable[[], None], quantiles: Sequence[float]) -> Any:
    from triton.testing import do_bench

    return do_bench(call, warmup=_WARM_UP, rep=_TIMED, quantiles=quantiles)


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


def per_block(elements: int) -> Callable[[dict[str, Any]], tuple[int]]:
    """The same, of a tuned kernel whose block size the launch decides."""
    return lambda sizes: grid(elements, sizes["block"])


def next_power_of_two(n: int) -> int:
    """The smallest power of two that is at least `n`; Triton's blocks have such sizes."""
    return 1 << max(0, n - 1).bit_length()


def warps(columns: int) -> int:
    """Warps a program for rows of this many columns."""
    if columns < 2048:
        return 4
    return 8 if columns < 8192 else 16
