"""GELU of x + bias, tanh form.

gelu(v) = v/2 (1 + tanh(sqrt(2/pi) (v + 0.044715 v^3)))  (Hendrycks and Gimpel 2016, section 2)
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional as F

from .column_sum import COLUMNS, ROWS, partials, tiles
from .triton_support import ELEMENTWISE, per_block, places, tl, triton, tuned

SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)


def reference(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """x: [..., h], bias: [h]."""
    v = x + bias
    return 0.5 * v * (1.0 + torch.tanh(SQRT_2_OVER_PI * (v + 0.044715 * v * v * v)))


def torch_fused(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """GELU (tanh form) of `x + bias` by torch's own operation; shape of `x`."""
    return F.gelu(x + bias, approximate="tanh")


@triton.jit
def _tanh(u):
    """From an exponential that cannot overflow."""
    e = tl.exp(-2.0 * tl.abs(u))
    t = (1.0 - e) / (1.0 + e)
    return tl.where(u < 0, -t, t)


@tuned(ELEMENTWISE, key=["h"])
@triton.jit
def _forward(x, bias, out, n, h, block: tl.constexpr):
    at = places(block)
    inside = at < n
    v = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    v += tl.load(bias + at % h, mask=inside, other=0.0).to(tl.float32)
    t = _tanh(0.7978845608028654 * (v + 0.044715 * v * v * v))
    tl.store(out + at, 0.5 * v * (1.0 + t), mask=inside)


@triton.jit
def _backward(grad, x, bias, out, sums, rows, columns, height: tl.constexpr, width: tl.constexpr):
    """Walks a stripe of rows and keeps the bias' gradient of its columns: a read of x and grad, a
    write of out.
    """
    stripe = tl.program_id(0)
    column = tl.program_id(1) * width + tl.arange(0, width)
    b = tl.load(bias + column, mask=column < columns, other=0.0).to(tl.float32)
    total = tl.zeros((width,), dtype=tl.float32)
    for first in range(stripe * height, rows, tl.num_programs(0) * height):
        row = first + tl.arange(0, height)
        at = row.to(tl.int64)[:, None] * columns + column[None, :]
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        v = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) + b[None, :]
        g = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
        t = _tanh(0.7978845608028654 * (v + 0.044715 * v * v * v))
        slope = 0.7978845608028654 * (1.0 + 3.0 * 0.044715 * v * v)
        d = g * (0.5 * (1.0 + t) + 0.5 * v * (1.0 - t * t) * slope)
        tl.store(out + at, d, mask=inside)
        total += tl.sum(d, axis=0)
    tl.store(sums + stripe.to(tl.int64) * columns + column, total, mask=column < columns)


class _BiasGelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        _forward[per_block(x.numel())](x, bias, out, x.numel(), bias.numel())
        ctx.save_for_backward(x, bias)
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, bias = ctx.saved_tensors
        out, columns = torch.empty_like(x), bias.numel()
        rows, sums = x.numel() // columns, partials(x, columns)
        _backward[tiles(rows, columns)](
            grad.contiguous(),
            x,
            bias,
            out,
            sums=sums,
            rows=rows,
            columns=columns,
            height=ROWS,
            width=COLUMNS,
        )
        return out, sums.sum(0).to(bias.dtype)


def fused(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Triton: one read of x, one write; arithmetic in float32."""
    return _BiasGelu.apply(x, bias)
