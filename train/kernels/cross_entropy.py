"""Cross entropy per token over a vocabulary that may be split over the tensor parallel ranks.

The plain forms live in hangdoctor.train.tensor_parallel.cross_entropy; here is the fused one. A
rank makes, in one pass over its logits, their maximum, the sum of exponentials and the target's
logit; three small reductions join the ranks; the gradient is written in one more pass.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from ..tensor_parallel.collectives import all_reduce
from ..tensor_parallel.cross_entropy import vocab_parallel_cross_entropy
from ..topology import TensorGroup
from .triton_support import tl, triton

_BLOCK = 4096


def reference(logits: torch.Tensor, target: torch.Tensor, tp: TensorGroup) -> torch.Tensor:
    """logits: [..., V / tp]; target: [...] -> loss per token [...], float32."""
    return vocab_parallel_cross_entropy(logits, target, tp)


@triton.jit
def _forward(logits, target, largest, total, picked, columns, first, block: tl.constexpr):
    """Running maximum and sum, as in online softmax (Milakov and Gimelshein 2018)."""
    row = tl.program_id(0).to(tl.int64)
    peak = float("-inf")
    seen = 0.0
    for start in range(0, columns, block):
        at = start + tl.arange(0, block)
        x = tl.load(logits + row * columns + at, mask=at < columns, other=float("-inf")).to(
            tl.float32
        )
        higher = tl.maximum(peak, tl.max(x, axis=0))
        seen = seen * tl.exp(peak - higher) + tl.sum(tl.exp(x - higher), axis=0)
        peak = higher
    wanted = tl.load(target + row) - first
    mine = (wanted >= 0) & (wanted < columns)
    value = tl.load(logits + row * columns + wanted, mask=mine, other=0.0).to(tl.float32)
    tl.store(largest + row, peak)
    tl.store(total + row, seen)
    tl.store(picked + row, tl.where(mine, value, 0.0))


@triton.jit
def _backward(logits, target, grad, normalizer, out, columns, first, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    scale = tl.load(grad + row)
    z = tl.load(normalizer + row)
    wanted = tl.load(target + row) - first
    for start in range(0, columns, block):
        at = start + tl.arange(0, block)
        inside = at < columns
        x = tl.load(logits + row * columns + at, mask=inside, other=float("-inf")).to(tl.float32)
        p = tl.exp(x - z)
        tl.store(
            out + row * columns + at, scale * (p - tl.where(at == wanted, 1.0, 0.0)), mask=inside
        )


class _FusedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, target: torch.Tensor, tp: TensorGroup
    ) -> torch.Tensor:
        logits, target = logits.contiguous(), target.contiguous()
        columns, rows = logits.shape[-1], target.numel()
        first = columns * tp.rank
        peak, total, picked = (
            torch.empty(rows, dtype=torch.float32, device=logits.device) for _ in range(3)
        )
        _forward[(rows,)](
            logits,
            target,
            peak,
            total,
            picked=picked,
            columns=columns,
            first=first,
            block=_BLOCK,
        )
        if tp.size > 1:
            own = peak.clone()
            all_reduce(peak, tp, dist.ReduceOp.MAX)
            total = all_reduce(total * (own - peak).exp(), tp)
            picked = all_reduce(picked, tp)
        normalizer = peak + total.log()
        ctx.save_for_backward(logits, target, normalizer)
        ctx.first = first
        return (normalizer - picked).view(target.shape)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        logits, target, normalizer = ctx.saved_tensors
        columns = logits.shape[-1]
        out = torch.empty_like(logits)
        scale = grad.contiguous().float().view(-1)
        _backward[(target.numel(),)](
            logits,
            target,
            scale,
            normalizer,
            out=out,
            columns=columns,
            first=ctx.first,
            block=_BLOCK,
        )
        return out, None, None


def fused(logits: torch.Tensor, target: torch.Tensor, tp: TensorGroup) -> torch.Tensor:
    """Triton; logits stay in their own dtype, arithmetic in float32."""
    return _FusedCrossEntropy.apply(logits, target, tp)


def apex(logits: torch.Tensor, target: torch.Tensor, tp: TensorGroup) -> torch.Tensor:
    """apex's xentropy knows no split vocabulary: used where one rank holds it all."""
    if tp.size > 1:
        return reference(logits, target, tp)
    from apex.contrib.xentropy import SoftmaxCrossEntropyLoss

    flat = SoftmaxCrossEntropyLoss.apply(logits.flatten(0, -2), target.flatten(), 0.0, -1, True)
    return flat.view(target.shape)
