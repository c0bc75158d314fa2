"""A device alone: does it multiply correctly and how fast, does its memory keep what is written.

Takes torch as an argument: the same lines run on a CPU and on a GPU.
"""

from __future__ import annotations

import time
from typing import Any

_REPEATS = 3
_LARGEST = 8  # entries are whole numbers up to this: exact in fp32, TF32 and their sums up to 2^24
_PATTERNS = (0x55, 0xAA)
_SLICE = 256 << 20  # bytes compared at a time: the comparison needs a byte more for each


def multiply_test(torch: Any, place: Any, side: int) -> float:
    """Floating-point operations a second of the fastest of some square matmuls in fp32.

    The product is checked by Freivalds' method, exactly: (A B) v = A (B v) in fp64.

    Raises:
        ArithmeticError: a product is wrong.
    """
    generator = torch.Generator().manual_seed(1)
    left, right = (
        torch.randint(-_LARGEST, _LARGEST + 1, (side, side), generator=generator)
        .to(place)
        .to(torch.float32)
        for _ in range(2)
    )
    vector = torch.randint(0, 2, (side, 1), generator=generator).to(place).to(torch.float64)
    expected = left.double() @ (right.double() @ vector)
    best = float("inf")
    for _ in range(1 + _REPEATS):
        _finish(torch, place)
        begin = time.perf_counter()
        product = left @ right
        _finish(torch, place)
        best = min(best, time.perf_counter() - begin)
        check_product(product, vector, expected)
    return float(2 * side**3 / best)


def check_product(product: Any, vector: Any, expected: Any) -> None:
    """
    Raises:
        ArithmeticError: product x vector is not what is expected.
    """
    wrong = int((product.double() @ vector != expected).sum())
    if wrong:
        raise ArithmeticError(f"a matmul is wrong in {wrong} of {expected.numel()} rows")


def memory_test(torch: Any, place: Any, size: int) -> float:
    """Bytes a second of a copy inside the memory; `size` bytes are written and read back, twice.

    Raises:
        ArithmeticError: a byte is not what was written.
    """
    block = torch.empty(size // 2, dtype=torch.uint8, device=place)
    copy = torch.empty_like(block)
    best = float("inf")
    for pattern in _PATTERNS:
        block.fill_(pattern)
        _finish(torch, place)
        begin = time.perf_counter()
        copy.copy_(block)
        _finish(torch, place)
        best = min(best, time.perf_counter() - begin)
        check_bytes(copy, pattern)
        check_bytes(block, pattern)
    return float(2 * block.numel() / best)  # each byte is read once and written once


def check_bytes(block: Any, pattern: int) -> None:
    """
    Raises:
        ArithmeticError: a byte differs from the pattern.
    """
    wrong = sum(int((part != pattern).sum()) for part in block.split(_SLICE))
    if wrong:
        raise ArithmeticError(f"{wrong} of {block.numel()} bytes of memory changed by themselves")


def _finish(torch: Any, place: Any) -> None:
    if place.type == "cuda":
        torch.cuda.synchronize(place)
