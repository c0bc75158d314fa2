"""Causal softmax of scaled attention scores."""

from __future__ import annotations

from typing import Any

import torch

from .triton_support import next_power_of_two, tl, triton, warps

LONGEST = 16384  # keys a row: one program holds a row in registers


def reference(scores: torch.Tensor, scale: float) -> torch.Tensor:
    """scores: [b, heads, q, k]; a query sees keys up to its own place, counted from the end.

    Softmax in float32.
    """
    q, k = scores.shape[-2:]
    hidden = torch.ones(q, k, dtype=torch.bool, device=scores.device).triu(1 + k - q)
    wide = scores if scores.dtype == torch.float64 else scores.float()
    return (wide * scale).masked_fill(hidden, float("-inf")).softmax(-1).to(scores.dtype)


torch_fused = reference


def unfit(queries: int, keys: int) -> str:
    """Why the Triton kernel cannot take this shape; empty where it can."""
    if keys > LONGEST:
        return f"{keys} keys a row are above the kernel's {LONGEST}"
    if keys < queries:
        return f"{queries} queries and {keys} keys: a query would see nothing"
    return ""


def megatron_unfit(queries: int, keys: int, batch_heads: int) -> str:
    """Why apex's scaled_upper_triang_masked_softmax cannot take this shape (its own constraints)."""
    if queries != keys:
        return f"{queries} queries are not {keys} keys"
    if not 16 < keys <= 16384 or keys % 4:
        return f"{keys} keys: it takes 17 to 16384, a multiple of 4"
    return (
        f"batch x heads {batch_heads} % 4 = {batch_heads % 4}, must be 0" if batch_heads % 4 else ""
    )


@triton.jit
def _forward(scores, out, queries, keys, scale, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)  # b x heads x q x k goes beyond 2^31 at 8192 tokens
    last = row % queries + keys - queries
    key = tl.arange(0, block)
    x = tl.load(scores + row * keys + key, mask=key < keys, other=0.0).to(tl.float32) * scale
    x = tl.where(key <= last, x, float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out + row * keys + key, e / tl.sum(e, axis=0), mask=key < keys)


@triton.jit
def _backward(grad, probabilities, out, keys, scale, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    key = tl.arange(0, block)
    g = tl.load(grad + row * keys + key, mask=key < keys, other=0.0).to(tl.float32)
    p = tl.load(probabilities + row * keys + key, mask=key < keys, other=0.0).to(tl.float32)
    tl.store(out + row * keys + key, scale * p * (g - tl.sum(g * p, axis=0)), mask=key < keys)


class _CausalSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor, scale: float) -> torch.Tensor:
        scores = scores.contiguous()
        queries, keys = scores.shape[-2:]
        rows, block = scores.numel() // keys, next_power_of_two(keys)
        out = torch.empty_like(scores)
        _forward[(rows,)](scores, out, queries, keys, scale, block=block, num_warps=warps(block))
        ctx.save_for_backward(out)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        (out,) = ctx.saved_tensors
        keys = out.shape[-1]
        rows, block = out.numel() // keys, next_power_of_two(keys)
        grads = torch.empty_like(out)
        _backward[(rows,)](
            grad.contiguous(), out, grads, keys, ctx.scale, block=block, num_warps=warps(block)
        )
        return grads, None


def fused(scores: torch.Tensor, scale: float) -> torch.Tensor:
    """Triton where the shape fits, the reference elsewhere."""
    if unfit(*scores.shape[-2:]):
        return reference(scores, scale)
    return _CausalSoftmax.apply(scores, scale)


def apex(scores: torch.Tensor, scale: float) -> torch.Tensor:
    """NVIDIA apex's upper triangular softmax where the shape fits, the reference elsewhere."""
    b, heads, q, k = scores.shape
    if scores.dtype not in (torch.float16, torch.bfloat16) or megatron_unfit(q, k, b * heads):
        return reference(scores, scale)
    from apex.transformer.functional.fused_softmax import ScaledUpperTriangMaskedSoftmax

    flat = scores.reshape(b * heads, q, k)
    return ScaledUpperTriangMaskedSoftmax.apply(flat, scale).view(b, heads, q, k)
