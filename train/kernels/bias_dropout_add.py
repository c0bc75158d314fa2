"""residual + dropout(x + bias): the end of each residual branch."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from .column_sum import COLUMNS, ROWS, column_sum, partials, tiles
from .triton_support import ELEMENTWISE, per_block, places, tl, triton, tuned


def reference(
    x: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor, probability: float, training: bool
) -> torch.Tensor:
    """x, residual: [..., h]; bias: [h]."""
    x = x + bias
    return residual + (F.dropout(x, probability, True) if training and probability > 0 else x)


torch_fused = reference


@triton.jit
def _interleaved(a, b, c, d, shape: tl.constexpr):
    """a0 b0 c0 d0 a1 b1 ... along the last dimension."""
    return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), shape)


@triton.jit
def _one_of_four(seed, at):
    """The number of each element, where the elements of a program are not fours in a row."""
    a, b, c, d = tl.rand4x(seed, at // 4)
    lane = at % 4
    return tl.where(lane < 2, tl.where(lane == 0, a, b), tl.where(lane == 2, c, d))


@tuned(ELEMENTWISE, key=["h"])
@triton.jit
def _forward(x, bias, residual, out, n, h, p, seed, drops: tl.constexpr, block: tl.constexpr):
    at = places(block)
    inside = at < n
    v = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    v += tl.load(bias + at % h, mask=inside, other=0.0).to(tl.float32)
    r = tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    if drops:
        # Each draw gives four numbers: those of four elements in a row.
        fours = (tl.program_id(0) * (block // 4) + tl.arange(0, block // 4)).to(tl.int32)
        a, b, c, d = tl.rand4x(tl.load(seed), fours)
        kept = _interleaved(a, b, c, d, (block,)) >= p
        v = tl.where(kept, v / (1.0 - p), 0.0)
    tl.store(out + at, r + v, mask=inside)


@triton.jit
def _backward(
    grad,
    out,
    sums,
    rows,
    columns,
    p,
    seed,
    in_fours: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
):
    """The mask is drawn again from the seed: nothing of it is stored. The bias' gradient comes with
    the same read. `in_fours`: rows are a multiple of four elements long.
    """
    stripe = tl.program_id(0)
    column = tl.program_id(1) * width + tl.arange(0, width)
    total = tl.zeros((width,), dtype=tl.float32)
    for first in range(stripe * height, rows, tl.num_programs(0) * height):
        row = first + tl.arange(0, height)
        at = row.to(tl.int64)[:, None] * columns + column[None, :]
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        g = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
        if in_fours:
            four = tl.program_id(1) * (width // 4) + tl.arange(0, width // 4)
            fours = (row[:, None] * (columns // 4) + four[None, :]).to(tl.int32)
            a, b, c, d = tl.rand4x(tl.load(seed), fours)
            drawn = _interleaved(a, b, c, d, (height, width))
        else:
            drawn = _one_of_four(tl.load(seed), at.to(tl.int32))
        kept = tl.where(drawn >= p, g / (1.0 - p), 0.0)
        tl.store(out + at, kept, mask=inside)
        total += tl.sum(kept, axis=0)
    tl.store(sums + stripe.to(tl.int64) * columns + column, total, mask=column < columns)


class _BiasDropoutAdd(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor, p: float
    ) -> torch.Tensor:
        x, residual = x.contiguous(), residual.contiguous()
        out = torch.empty_like(x)
        # From torch's stream, so that recomputation and tensor parallel streams hold for this
        # kernel too. It stays on the device: to read it would wait for everything that the GPU
        # still has to do, twice a layer.
        seed = torch.randint(2**31 - 1, (1,), device=x.device) if p > 0 else x
        _forward[per_block(x.numel())](
            x,
            bias,
            residual,
            out,
            n=x.numel(),
            h=bias.numel(),
            p=p,
            seed=seed,
            drops=p > 0,
        )
        ctx.p, ctx.seed, ctx.bias = p, seed if p > 0 else None, (bias.numel(), bias.dtype)
        return out

    @staticmethod
    def backward(
        ctx: Any, grad: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None]:
        h, dtype = ctx.bias
        if ctx.p == 0:
            return grad, column_sum(grad, h, dtype), grad, None
        grad = grad.contiguous()
        branch, rows, sums = torch.empty_like(grad), grad.numel() // h, partials(grad, h)
        _backward[tiles(rows, h)](
            grad,
            branch,
            sums,
            rows,
            columns=h,
            p=ctx.p,
            seed=ctx.seed,
            in_fours=h % 4 == 0,
            height=ROWS,
            width=COLUMNS,
        )
        return branch, sums.sum(0).to(dtype), grad, None


def fused(
    x: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor, probability: float, training: bool
) -> torch.Tensor:
    """Triton: one pass, the mask never in memory."""
    return _BiasDropoutAdd.apply(x, bias, residual, probability if training else 0.0)
