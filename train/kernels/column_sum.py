"""Sums down the columns: the gradient of a bias. float32 sums in two stages of fixed order, so that a
run repeats bit by bit; nothing of the input's size is written.
"""

from __future__ import annotations

import torch

from .triton_support import tl, triton

STRIPES = 128  # programs that share a column block; each leaves one partial sum
ROWS, COLUMNS = 32, 64  # of a tile


def stripes(rows: int) -> int:
    """How many partial sums `rows` rows are cut into."""
    return max(1, min(STRIPES, (rows + ROWS - 1) // ROWS))


def tiles(rows: int, columns: int) -> tuple[int, int]:
    """Programs to launch over a matrix: stripes of rows, blocks of columns."""
    return stripes(rows), (columns + COLUMNS - 1) // COLUMNS


@triton.jit
def _sums(x, out, rows, columns, height: tl.constexpr, width: tl.constexpr):
    stripe = tl.program_id(0)
    column = tl.program_id(1) * width + tl.arange(0, width)
    total = tl.zeros((width,), dtype=tl.float32)
    for first in range(stripe * height, rows, tl.num_programs(0) * height):
        row = first + tl.arange(0, height)
        at = row.to(tl.int64)[:, None] * columns + column[None, :]
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        total += tl.sum(tl.load(x + at, mask=inside, other=0.0).to(tl.float32), axis=0)
    tl.store(out + stripe.to(tl.int64) * columns + column, total, mask=column < columns)


def partials(x: torch.Tensor, columns: int) -> torch.Tensor:
    """Room for the first stage: [stripes, columns], float32, on x's device."""
    rows = x.numel() // columns
    return torch.empty(stripes(rows), columns, dtype=torch.float32, device=x.device)


def column_sum(x: torch.Tensor, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """Sum of `x` [..., columns] over everything but the columns, in `dtype`: one read of x."""
    x = x.contiguous()
    first = partials(x, columns)
    rows = x.numel() // columns
    _sums[tiles(rows, columns)](x, first, rows, columns, height=ROWS, width=COLUMNS)
    return first.sum(0).to(dtype)
