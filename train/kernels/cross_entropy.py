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
from ..tensor_parallel.cross_entropy import real_columns, vocab_parallel_cross_entropy
from ..topology import TensorGroup
from .triton_support import tl, triton

_BLOCK = 4096


def reference(
    logits: torch.Tensor, target: torch.Tensor, tp: TensorGroup, vocab_size: int | None = None
) -> torch.Tensor:
    """logits: [..., V / tp]; target: [...] -> loss per token [...], float32.

    `vocab_size`: tokens that exist, of the whole vocabulary; the columns behind them are padding.
    """
    return vocab_parallel_cross_entropy(logits, target, tp, vocab_size)


@triton.jit
def _forward(logits, target, largest, total, picked, columns, real, first, block: tl.constexpr):
    """Running maximum and sum, as in online softmax (Milakov and Gimelshein 2018); the columns from
    `real` on are padding and are not read.
    """
    row = tl.program_id(0).to(tl.int64)
    peak = float("-inf")
    seen = 0.0
    for start in range(0, real, block):
        at = start + tl.arange(0, block)
        x = tl.load(logits + row * columns + at, mask=at < real, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(peak, tl.max(x, axis=0))
        seen = seen * tl.exp(peak - higher) + tl.sum(tl.exp(x - higher), axis=0)
        peak = higher
    wanted = tl.load(target + row) - first
    mine = (wanted >= 0) & (wanted < real)
    value = tl.load(logits + row * columns + wanted, mask=mine, other=0.0).to(tl.float32)
    tl.store(largest + row, peak)
    tl.store(total + row, seen)
    tl.store(picked + row, tl.where(mine, value, 0.0))


@triton.jit
def _backward(logits, target, grad, normalizer, out, columns, real, first, block: tl.constexpr):
    """`out` may be `logits`: a place is written by the program that has read it."""
    row = tl.program_id(0).to(tl.int64)
    scale = tl.load(grad + row).to(tl.float32)
    z = tl.load(normalizer + row)
    wanted = tl.load(target + row) - first
    for start in range(0, columns, block):
        at = start + tl.arange(0, block)
        x = tl.load(logits + row * columns + at, mask=at < real, other=float("-inf")).to(tl.float32)
        p = tl.where(at < real, tl.exp(x - z), 0.0)
        hit = (at == wanted) & (at < real)
        tl.store(out + row * columns + at, scale * (p - tl.where(hit, 1.0, 0.0)), mask=at < columns)


def losses_of(
    logits: torch.Tensor, target: torch.Tensor, tp: TensorGroup, real: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """(loss, log of the sum of exponentials) of each row, float32. Both tensors contiguous."""
    columns, rows = logits.shape[-1], target.numel()
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
        real=real,
        first=columns * tp.rank,
        block=_BLOCK,
    )
    if tp.size > 1:
        own = peak.clone()
        all_reduce(peak, tp, dist.ReduceOp.MAX)
        total = all_reduce(total * (own - peak).exp(), tp)
        picked = all_reduce(picked, tp)
    normalizer = peak + total.log()
    return normalizer - picked, normalizer


def gradient_of(
    logits: torch.Tensor,
    target: torch.Tensor,
    scale: torch.Tensor,
    normalizer: torch.Tensor,
    *,
    tp: TensorGroup,
    real: int,
    out: torch.Tensor,
) -> None:
    """Write the gradient of the logits into `out`, which may be their own memory. `scale`: the
    gradient of each row's loss.
    """
    columns = logits.shape[-1]
    _backward[(target.numel(),)](
        logits,
        target,
        scale,
        normalizer,
        out=out,
        columns=columns,
        real=real,
        first=columns * tp.rank,
        block=_BLOCK,
    )


class _FusedCrossEntropy(torch.autograd.Function):
    """The gradient takes the logits' memory, which no one else needs by then: the largest tensor of
    a step exists once. A leaf keeps its numbers.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, target: torch.Tensor, tp: TensorGroup, real: int
    ) -> torch.Tensor:
        is_given = logits.is_leaf
        logits, target = logits.contiguous(), target.contiguous()
        losses, normalizer = losses_of(logits, target, tp, real)
        ctx.save_for_backward(logits, target, normalizer)
        ctx.tp, ctx.real, ctx.is_given = tp, real, is_given
        return losses.view(target.shape)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        logits, target, normalizer = ctx.saved_tensors
        out = torch.empty_like(logits) if ctx.is_given else logits.detach()
        scale = grad.contiguous().view(-1)
        gradient_of(logits, target, scale, normalizer, tp=ctx.tp, real=ctx.real, out=out)
        if not ctx.is_given:  # a second walk of the graph is refused, not wrong
            torch.autograd.graph.increment_version(logits)
        return out, None, None, None


def fused(
    logits: torch.Tensor, target: torch.Tensor, tp: TensorGroup, vocab_size: int | None = None
) -> torch.Tensor:
    """Triton; logits stay in their own dtype, arithmetic in float32. The backward pass overwrites
    the logits, unless they are a leaf.
    """
    real = real_columns(logits.shape[-1], tp, vocab_size)
    return _FusedCrossEntropy.apply(logits, target, tp, real)


def apex(
    logits: torch.Tensor, target: torch.Tensor, tp: TensorGroup, vocab_size: int | None = None
) -> torch.Tensor:
    """apex's xentropy knows neither a split vocabulary nor padding: used where one rank holds it
    all, without any.
    """
    if tp.size > 1 or real_columns(logits.shape[-1], tp, vocab_size) < logits.shape[-1]:
        return reference(logits, target, tp, vocab_size)
    from apex.contrib.xentropy import SoftmaxCrossEntropyLoss

    flat = SoftmaxCrossEntropyLoss.apply(logits.flatten(0, -2), target.flatten(), 0.0, -1, True)
    return flat.view(target.shape)
