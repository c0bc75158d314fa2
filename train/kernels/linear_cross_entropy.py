"""The output projection and cross entropy in one, some tokens at a time: the logits of all tokens
never exist together.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from ..tensor_parallel.cross_entropy import vocab_parallel_cross_entropy
from ..topology import TensorGroup


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
    None: all rows. `chunk`: tokens whose logits exist at a time; 0: chosen here.
    """
    return vocab_parallel_cross_entropy(F.linear(hidden, weight), target, group, vocab_size)
