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


def _reduced(
    x: torch.Tensor, tp: TensorGroup, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM
) -> torch.Tensor:
    return x if tp.size == 1 else all_reduce(x, tp, op)


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _peaks(own: torch.Tensor) -> torch.Tensor:
    """The largest of each row; of a rank that has padding alone, the lowest number."""
    if own.shape[-1]:
        return own.amax(dim=-1)
    return own.new_full(own.shape[:-1], torch.finfo(own.dtype).min)


def _local(
    target: torch.Tensor, columns: int, tp: TensorGroup, real: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Column of each target among this rank's, and whether it is another rank's."""
    local = target - columns * tp.rank
    elsewhere = (local < 0) | (local >= real)
    return local.masked_fill(elsewhere, 0), elsewhere


def vocab_losses(
    logits: torch.Tensor, target: torch.Tensor, tp: TensorGroup, real: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """(loss, log of the sum of exponentials) per token, float32; `real`: this rank's columns that
    are tokens. Three reductions: the maximum, the sum of exponentials, the target's logit
    (Megatron-LM). Padding is never read.
    """
    wide = _wide(logits[..., :real])
    largest = _reduced(_peaks(wide), tp, dist.ReduceOp.MAX)
    shifted = wide - largest.unsqueeze(-1)
    picked = torch.zeros_like(largest)
    if real:
        local, elsewhere = _local(target, logits.shape[-1], tp, real)
        picked = shifted.gather(-1, local.unsqueeze(-1)).squeeze(-1).masked_fill(elsewhere, 0.0)
    picked = _reduced(picked, tp)
    total = _reduced(shifted.exp_().sum(dim=-1), tp).log()
    return total - picked, total + largest


def vocab_gradient(
    logits: torch.Tensor,
    target: torch.Tensor,
    scale: torch.Tensor,
    normalizer: torch.Tensor,
    *,
    tp: TensorGroup,
    real: int,
) -> None:
    """Overwrite the logits with their gradient. `scale`: the gradient of each token's loss;
    padding gets none.
    """
    own = logits[..., :real]
    if real:
        probabilities = (_wide(own) - normalizer.unsqueeze(-1)).exp_()
        local, elsewhere = _local(target, logits.shape[-1], tp, real)
        at = local.unsqueeze(-1)
        one = (~elsewhere).to(probabilities.dtype).unsqueeze(-1)
        # Subtracted before it is rounded: p - 1 in bf16 would lose what is left of a likely target.
        probabilities.scatter_add_(-1, at, -one)
        torch.mul(probabilities, scale.unsqueeze(-1), out=own)
    logits[..., real:] = 0


class _VocabParallelCrossEntropy(torch.autograd.Function):
    """The gradient takes the logits' memory, which no one else needs by then. A leaf keeps its
    numbers.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, target: torch.Tensor, tp: TensorGroup, real: int
    ) -> torch.Tensor:
        losses, normalizer = vocab_losses(logits, target, tp, real)
        ctx.save_for_backward(logits, target, normalizer)
        ctx.tp, ctx.real, ctx.is_given = tp, real, logits.is_leaf
        return losses

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        logits, target, normalizer = ctx.saved_tensors
        out = logits.clone() if ctx.is_given else logits.detach()
        vocab_gradient(out, target, grad, normalizer, tp=ctx.tp, real=ctx.real)
        return out, None, None, None


def vocab_parallel_cross_entropy(
    logits: torch.Tensor, target: torch.Tensor, tp: TensorGroup, vocab_size: int | None = None
) -> torch.Tensor:
    """Loss per token, float32. The backward pass may overwrite the logits, unless they are a leaf.

    logits: [..., V / tp] of this rank; target: [...], token ids of the whole vocabulary;
    `vocab_size`: tokens that exist, of the whole vocabulary, where the rest is padding.
    """
    real = real_columns(logits.shape[-1], tp, vocab_size)
    if tp.size == 1 and real == logits.shape[-1]:
        flat = F.cross_entropy(logits.float().flatten(0, -2), target.flatten(), reduction="none")
        return flat.view(target.shape)
    return _VocabParallelCrossEntropy.apply(logits, target, tp, real)
