"""The collectives of the tensor parallel ranks; every one passes here, so that a fault can strike
before it.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from .. import faults
from ..topology import TensorGroup


def _replaced(x: torch.Tensor, tp: TensorGroup) -> bool:
    return faults.point("tp", engine=False, tensor=x, group=tp.group, ranks=tp.ranks)


def all_reduce(
    x: torch.Tensor, tp: TensorGroup, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM
) -> torch.Tensor:
    """Sum (or `op`) over the ranks, in place. x: any shape, the same on each rank."""
    if not _replaced(x, tp):
        dist.all_reduce(x, op=op, group=tp.group)
    return x


def all_gather_first(x: torch.Tensor, tp: TensorGroup) -> torch.Tensor:
    """[n, ...] on each rank -> [n * size, ...], in the order of the ranks."""
    out = x.new_empty((x.shape[0] * tp.size, *x.shape[1:]))
    if not _replaced(x, tp):
        dist.all_gather_into_tensor(out, x.contiguous(), group=tp.group)
    return out


def reduce_scatter_first(x: torch.Tensor, tp: TensorGroup) -> torch.Tensor:
    """[n, ...] on each rank -> this rank's [n / size, ...] of the sum."""
    out = x.new_empty((x.shape[0] // tp.size, *x.shape[1:]))
    if not _replaced(x, tp):
        dist.reduce_scatter_tensor(out, x.contiguous(), group=tp.group)
    return out


def all_to_all_first(x: torch.Tensor, tp: TensorGroup) -> torch.Tensor:
    """[size, ...]: block i goes to rank i, block i of the result comes from rank i."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if not _replaced(x, tp):
        dist.all_to_all_single(out, x.contiguous(), group=tp.group)
    return out
