"""Cross entropy over logits that are split by vocabulary, without ever gathering them."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional as F

from ..topology import TensorGroup
from .collectives import all_reduce


def real_columns(columns: int, tp: TensorGroup, vocab_size: int | None) -> int:
    """How many of this rank's `columns` are tokens that exist; behind them is padding."""
    if vocab_size is None:
        return columns
    return max(0, min(columns, vocab_size - columns * tp.rank))


def _peaks(own: torch.Tensor) -> torch.Tensor:
    """The largest of each row; of a rank that has padding alone, the lowest number."""
    if own.shape[-1]:
        return own.amax(dim=-1)
    return own.new_full(own.shape[:-1], torch.finfo(own.dtype).min)


class _VocabParallelCrossEntropy(torch.autograd.Function):
    """Three reductions: the maximum, the sum of exponentials, the logit of the target
    (Megatron-LM). Padding takes no part: it is never read, and its gradient is zero.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, target: torch.Tensor, tp: TensorGroup, real: int
    ) -> torch.Tensor:
        own = logits[..., :real]
        wide = own if own.dtype == torch.float64 else own.float()
        largest = _reduced(_peaks(wide), tp, dist.ReduceOp.MAX)
        exponentials = wide - largest.unsqueeze(-1)
        local = target - logits.shape[-1] * tp.rank
        elsewhere = (local < 0) | (local >= real)
        local = local.masked_fill(elsewhere, 0)
        picked = torch.zeros_like(largest)
        if real:
            picked = exponentials.gather(-1, local.unsqueeze(-1)).squeeze(-1)
            picked = picked.masked_fill(elsewhere, 0.0)
        picked = _reduced(picked, tp)
        exponentials.exp_()
        total = _reduced(exponentials.sum(dim=-1), tp)
        ctx.save_for_backward(exponentials.div_(total.unsqueeze(-1)), local, elsewhere)
        ctx.columns, ctx.dtype = logits.shape[-1], logits.dtype
        return total.log() - picked

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        probabilities, local, elsewhere = ctx.saved_tensors
        real = probabilities.shape[-1]
        scale = grad.unsqueeze(-1)
        grads = torch.empty(
            (*probabilities.shape[:-1], ctx.columns), dtype=ctx.dtype, device=grad.device
        )
        grads[..., real:] = 0
        if real:
            torch.mul(probabilities, scale, out=grads[..., :real])
            at = local.unsqueeze(-1)
            one = (~elsewhere).to(probabilities.dtype).unsqueeze(-1)
            # Set, not subtracted: p - 1 in bf16 would lose what is left of a likely target.
            grads.scatter_(-1, at, ((probabilities.gather(-1, at) - one) * scale).to(ctx.dtype))
        return grads, None, None, None


def _reduced(
    x: torch.Tensor, tp: TensorGroup, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM
) -> torch.Tensor:
    return x if tp.size == 1 else all_reduce(x, tp, op)


def vocab_parallel_cross_entropy(
    logits: torch.Tensor, target: torch.Tensor, tp: TensorGroup, vocab_size: int | None = None
) -> torch.Tensor:
    """Loss per token, float32.

    logits: [..., V / tp] of this rank; target: [...], token ids of the whole vocabulary;
    `vocab_size`: tokens that exist, of the whole vocabulary, where the rest is padding.
    """
    real = real_columns(logits.shape[-1], tp, vocab_size)
    if tp.size == 1 and real == logits.shape[-1]:
        flat = F.cross_entropy(logits.float().flatten(0, -2), target.flatten(), reduction="none")
        return flat.view(target.shape)
    return _VocabParallelCrossEntropy.apply(logits, target, tp, real)
