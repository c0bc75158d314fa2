"""Autograd functions between regions: what one does forward, its partner does backward.

Regions, after Megatron-LM (Shoeybi et al. 2019; Korthikanti et al. 2022 for the sequence):
replicated (all ranks hold the same), tensor (each holds its slice of the features), sequence (each
holds its slice of dimension 0). With one rank every function is the identity.
"""

from __future__ import annotations

from typing import Any

import torch

from ..topology import TensorGroup
from .collectives import all_gather_first, all_reduce, all_to_all_first, reduce_scatter_first


def _own_slice(x: torch.Tensor, tp: TensorGroup) -> torch.Tensor:
    return x.chunk(tp.size, dim=0)[tp.rank].contiguous()


class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, tp: TensorGroup) -> torch.Tensor:
        ctx.tp = tp
        return x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return all_reduce(grad.contiguous(), ctx.tp), None


class _Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, tp: TensorGroup) -> torch.Tensor:
        return all_reduce(x.contiguous(), tp)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad, None


class _GatherSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, tp: TensorGroup) -> torch.Tensor:
        ctx.tp = tp
        return all_gather_first(x, tp)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return reduce_scatter_first(grad, ctx.tp), None


class _ReduceScatterSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, tp: TensorGroup) -> torch.Tensor:
        ctx.tp = tp
        return reduce_scatter_first(x, tp)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return all_gather_first(grad, ctx.tp), None


class _SplitSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, tp: TensorGroup) -> torch.Tensor:
        ctx.tp = tp
        return _own_slice(x, tp)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return all_gather_first(grad, ctx.tp), None


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, tp: TensorGroup) -> torch.Tensor:
        ctx.tp = tp
        return all_to_all_first(x, tp)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return all_to_all_first(grad.contiguous(), ctx.tp), None


class _MeanOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, tp: TensorGroup) -> torch.Tensor:
        ctx.size = tp.size
        return all_reduce(x.clone(), tp) / tp.size

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad / ctx.size, None


def copy_to_tensor(x: torch.Tensor, tp: TensorGroup) -> torch.Tensor:
    """replicated -> tensor: identity forward, sum of the gradients backward."""
    return x if tp.size == 1 else _Copy.apply(x, tp)


def reduce_from_tensor(x: torch.Tensor, tp: TensorGroup) -> torch.Tensor:
    """tensor -> replicated: sum forward, identity backward."""
    return x if tp.size == 1 else _Reduce.apply(x, tp)


def gather_sequence(x: torch.Tensor, tp: TensorGroup) -> torch.Tensor:
    """sequence [s/n, ...] -> tensor [s, ...]: gather forward, reduce-scatter backward."""
    return x if tp.size == 1 else _GatherSequence.apply(x, tp)


def reduce_scatter_sequence(x: torch.Tensor, tp: TensorGroup) -> torch.Tensor:
    """tensor [s, ...] (partial sums) -> sequence [s/n, ...]: reduce-scatter forward, gather
    backward.
    """
    return x if tp.size == 1 else _ReduceScatterSequence.apply(x, tp)


def split_sequence(x: torch.Tensor, tp: TensorGroup) -> torch.Tensor:
    """replicated [s, ...] -> sequence [s/n, ...]: slice forward, gather backward."""
    return x if tp.size == 1 else _SplitSequence.apply(x, tp)


def mean_over_ranks(x: torch.Tensor, tp: TensorGroup) -> torch.Tensor:
    """Mean of a scalar over the ranks; each rank's own part of the gradient backward."""
    return x if tp.size == 1 else _MeanOverRanks.apply(x, tp)


def heads_for_sequence(x: torch.Tensor, tp: TensorGroup) -> torch.Tensor:
    """Ulysses (Jacobs et al. 2023): [s/n, b, heads, d] -> [s, b, heads/n, d]."""
    if tp.size == 1:
        return x
    s, b, heads, d = x.shape
    blocks = x.reshape(s, b, tp.size, heads // tp.size, d).permute(2, 0, 1, 3, 4)
    return _AllToAll.apply(blocks.contiguous(), tp).reshape(tp.size * s, b, heads // tp.size, d)


def sequence_for_heads(x: torch.Tensor, tp: TensorGroup) -> torch.Tensor:
    """The way back: [s, b, heads/n, d] -> [s/n, b, heads, d]."""
    if tp.size == 1:
        return x
    s, b, heads, d = x.shape
    blocks = _AllToAll.apply(x.reshape(tp.size, s // tp.size, b, heads, d).contiguous(), tp)
    return blocks.permute(1, 2, 0, 3, 4).reshape(s // tp.size, b, tp.size * heads, d)
