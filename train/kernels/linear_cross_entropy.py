"""The output projection and cross entropy in one, some tokens at a time: the logits of all tokens
never exist together.

What the backward pass needs is one number a token, the log of the sum of exponentials; it makes the
logits of each piece again, one product more, and turns them into their gradient where they lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from ..tensor_parallel.cross_entropy import (
    real_columns,
    vocab_gradient,
    vocab_losses,
    vocab_parallel_cross_entropy,
)
from ..topology import TensorGroup
from . import cross_entropy

_PIECE = 2**28  # bytes of logits that exist at a time, where no one says how many tokens


def reference(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    group: TensorGroup,
    *,
    vocab_size: int | None = None,
    chunk: int = 0,
) -> torch.Tensor:
    """hidden: [tokens, h]; weight: [V / tp, h] of this rank; target: [tokens] -> loss per token,
    float32.

    Gradients: of the weight those of this rank's rows; of `hidden` this rank's part of the sum over
    the group, which the caller adds up. `vocab_size`: tokens that exist, of the whole vocabulary;
    None: all rows. `chunk`: tokens whose logits exist at a time; 0: chosen here. This flavour makes
    them all at once.
    """
    return vocab_parallel_cross_entropy(F.linear(hidden, weight), target, group, vocab_size)


def tokens_at_a_time(tokens: int, weight: torch.Tensor, chunk: int) -> int:
    """`chunk`, else as many tokens as `_PIECE` has room for: a multiple of 128, which suits the
    product.
    """
    if chunk:
        return min(tokens, chunk)
    fit = _PIECE // (weight.shape[0] * weight.element_size())
    return max(1, min(tokens, max(128, fit // 128 * 128)))


@dataclass(frozen=True)
class _Plan:
    """How the logits are made: for which ranks, with how many columns that are tokens, how many
    rows at a time, and by which kernels.
    """

    group: TensorGroup
    real: int
    piece: int
    way: Any


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        target: torch.Tensor,
        plan: _Plan,
    ) -> torch.Tensor:
        ctx.plan = plan
        losses, normalizers = [], []
        for part in _pieces(len(hidden), plan.piece):
            logits = F.linear(hidden[part], weight)
            loss, normalizer = plan.way.losses(logits, target[part], plan.group, plan.real)
            losses.append(loss)
            normalizers.append(normalizer)
        ctx.save_for_backward(hidden, weight, target, torch.cat(normalizers))
        return torch.cat(losses)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        hidden, weight, target, normalizers = ctx.saved_tensors
        needs_hidden, needs_weight = ctx.needs_input_grad[:2]
        grad, plan = grad.contiguous(), ctx.plan
        of_hidden = torch.empty_like(hidden) if needs_hidden else None
        of_weight = None
        for part in _pieces(len(hidden), plan.piece):
            logits = F.linear(hidden[part], weight)
            rest = target[part], grad[part], normalizers[part]
            plan.way.gradient(logits, *rest, tp=plan.group, real=plan.real)
            if of_hidden is not None:
                torch.mm(logits, weight, out=of_hidden[part])
            if needs_weight:
                of_weight = _added(of_weight, logits, hidden[part], len(hidden) > plan.piece)
        if of_weight is not None:
            of_weight = of_weight.to(weight.dtype)
        return of_hidden, of_weight, None, None


def _pieces(tokens: int, piece: int) -> Iterator[slice]:
    return (slice(first, min(first + piece, tokens)) for first in range(0, tokens, piece))


def _added(
    so_far: torch.Tensor | None, logits: torch.Tensor, hidden: torch.Tensor, several: bool
) -> torch.Tensor:
    """The weight's gradient with one piece more: the sum over pieces in float32 at least."""
    own = torch.mm(logits.t(), hidden)
    if so_far is not None:
        return so_far.add_(own)
    return own.float() if several and own.dtype.itemsize < 4 else own


class TorchWay:
    """Losses and gradients by torch's own operations."""

    losses = staticmethod(vocab_losses)
    gradient = staticmethod(vocab_gradient)


class TritonWay:
    """The same by the kernels of cross entropy."""

    losses = staticmethod(cross_entropy.losses_of)

    @staticmethod
    def gradient(logits: torch.Tensor, *args: torch.Tensor, tp: TensorGroup, real: int) -> None:
        """Overwrite the logits with their gradient."""
        cross_entropy.gradient_of(logits, *args, tp=tp, real=real, out=logits)


def _chunked(way: Any) -> Callable[..., torch.Tensor]:
    def losses(
        hidden: torch.Tensor,
        weight: torch.Tensor,
        target: torch.Tensor,
        group: TensorGroup,
        *,
        vocab_size: int | None = None,
        chunk: int = 0,
    ) -> torch.Tensor:
        """In pieces of `chunk` tokens; the shapes are those of `reference`."""
        real = real_columns(weight.shape[0], group, vocab_size)
        piece = tokens_at_a_time(len(hidden), weight, chunk)
        plan = _Plan(group, real, piece, way)
        return _LinearCrossEntropy.apply(hidden, weight, target.contiguous(), plan)

    return losses


torch_chunked = _chunked(TorchWay)
fused = _chunked(TritonWay)
