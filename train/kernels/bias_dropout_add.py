"""residual + dropout(x + bias): the end of each residual branch."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from .triton_support import BLOCK, grid, places, tl, triton


def reference(
    x: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor, probability: float, training: bool
) -> torch.Tensor:
    """x, residual: [..., h]; bias: [h]."""
    x = x + bias
    return residual + (F.dropout(x, probability, True) if training and probability > 0 else x)


torch_fused = reference


@triton.jit
def _forward(x, bias, residual, out, n, h, p, seed, drops: tl.constexpr, block: tl.constexpr):
    at = places(block)
    inside = at < n
    v = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    v += tl.load(bias + at % h, mask=inside, other=0.0).to(tl.float32)
    r = tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    if drops:
        kept = tl.rand(tl.load(seed), at.to(tl.int32)) >= p
        v = tl.where(kept, v / (1.0 - p), 0.0)
    tl.store(out + at, r + v, mask=inside)


@triton.jit
def _backward(grad, out, n, p, seed, block: tl.constexpr):
    """The mask is drawn again from the seed: nothing of it is stored."""
    at = places(block)
    inside = at < n
    g = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
    kept = tl.rand(tl.load(seed), at.to(tl.int32)) >= p
    tl.store(out + at, tl.where(kept, g / (1.0 - p), 0.0), mask=inside)


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
        _forward[grid(x.numel())](
            x,
            bias,
            residual,
            out,
            n=x.numel(),
            h=bias.numel(),
            p=p,
            seed=seed,
            drops=p > 0,
            block=BLOCK,
        )
        ctx.p, ctx.seed, ctx.bias = p, seed if p > 0 else None, (bias.numel(), bias.dtype)
        return out

    @staticmethod
    def backward(
        ctx: Any, grad: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None]:
        branch, (h, dtype) = grad, ctx.bias
        if ctx.p > 0:
            grad = grad.contiguous()
            branch = torch.empty_like(grad)
            n = grad.numel()
            _backward[grid(n)](grad, branch, n, ctx.p, seed=ctx.seed, block=BLOCK)
        return branch, branch.reshape(-1, h).float().sum(0).to(dtype), grad, None


def fused(
    x: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor, probability: float, training: bool
) -> torch.Tensor:
    """Triton: one pass, the mask never in memory."""
    return _BiasDropoutAdd.apply(x, bias, residual, probability if training else 0.0)
