"""Cross entropy over logits that are split by vocabulary, without ever gathering them."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional as F

from ..topology import TensorGroup
from .collectives import all_reduce


class _VocabParallelCrossEntropy(torch.autograd.Function):
    """Three reductions: the maximum, the sum of exponentials, the logit of the target
    (Megatron-LM).
    """

    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, target: torch.Tensor, tp: TensorGroup
    ) -> torch.Tensor:
        logits = logits.float()
        largest = all_reduce(logits.amax(dim=-1), tp, dist.ReduceOp.MAX)
        shifted = logits - largest.unsqueeze(-1)
        local = target - logits.shape[-1] * tp.rank
        elsewhere = (local < 0) | (local >= logits.shape[-1])
        local = local.masked_fill(elsewhere, 0)
        picked = shifted.gather(-1, local.unsqueeze(-1)).squeeze(-1).masked_fill(elsewhere, 0.0)
        picked = all_reduce(picked, tp)
        exponentials = shifted.exp()
        total = all_reduce(exponentials.sum(dim=-1), tp)
        ctx.save_for_backward(exponentials.div_(total.unsqueeze(-1)), local, elsewhere)
        return total.log() - picked

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        probabilities, local, elsewhere = ctx.saved_tensors
        one = (~elsewhere).to(probabilities.dtype).unsqueeze(-1)
        grads = probabilities.clone()  # the graph may be walked again
        grads.scatter_add_(-1, local.unsqueeze(-1), -one)
        return grads.mul_(grad.unsqueeze(-1)), None, None


def vocab_parallel_cross_entropy(
    logits: torch.Tensor, target: torch.Tensor, tp: TensorGroup
) -> torch.Tensor:
    """Loss per token, float32.

    logits: [..., V / tp] of this rank; target: [...], token ids of the whole vocabulary.
    """
    if tp.size == 1:
        flat = F.cross_entropy(logits.float().flatten(0, -2), target.flatten(), reduction="none")
        return flat.view(target.shape)
    return _VocabParallelCrossEntropy.apply(logits, target, tp)
