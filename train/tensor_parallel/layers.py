"""Linear and embedding layers whose weight is split over the tensor parallel ranks.

Activations are [s, b, h]. A rank draws its part of a weight alone, by seed, name and place, so that
every layout starts from the same model (`train/initial.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from ..initial import normal
from ..topology import TensorGroup
from .mappings import copy_to_tensor, gather_sequence, reduce_from_tensor, reduce_scatter_sequence


def split_parameter(part: torch.Tensor, dim: int, tp: TensorGroup) -> nn.Parameter:
    """`part`, this rank's slice along `dim`, marked so that norms count every slice once."""
    parameter = nn.Parameter(part)
    parameter.tensor_model_parallel = tp.size > 1  # the name that DeepSpeed looks for
    parameter.partition_dim = (
        dim  # on one rank too: a universal checkpoint is cut along it when more ranks load it
    )
    return parameter


@dataclass(frozen=True)
class Start:
    """What a weight is at the start: normal(0, std), by seed and name."""

    seed: int
    name: str
    std: float

    def whole(self, shape: tuple[int, int]) -> torch.Tensor:
        """All of a weight that no group splits."""
        return normal(self.seed, self.name, range(shape[0]), shape[1], self.std)

    def rows(self, shape: tuple[int, int], tp: TensorGroup) -> nn.Parameter:
        """This rank's rows of a weight of `shape`."""
        share = shape[0] // tp.size
        own = range(share * tp.rank, share * (tp.rank + 1))
        return split_parameter(normal(self.seed, self.name, own, shape[1], self.std), 0, tp)

    def columns(self, shape: tuple[int, int], tp: TensorGroup) -> nn.Parameter:
        """This rank's columns of a weight of `shape`: numbered down the columns, so that they too
        are one piece.
        """
        share = shape[1] // tp.size
        own = range(share * tp.rank, share * (tp.rank + 1))
        turned = normal(self.seed, self.name, own, shape[0], self.std)
        return split_parameter(turned.t().contiguous(), 1, tp)


def mark_partial(module: nn.Module) -> None:
    """Parameters that every rank holds whole and uses on its part of the sequence: their gradients
    are partial sums.
    """
    for parameter in module.parameters(recurse=False):
        if not getattr(parameter, "tensor_model_parallel", False):
            parameter.sequence_partial = True


class ColumnParallelLinear(nn.Module):
    """y = x W^T + b with W cut by output features: [s, b, in] -> [s, b, out / tp].

    With `sequence` the input is the rank's part of the sequence and is gathered first.
    """

    def __init__(
        self,
        size_in: int,
        size_out: int,
        tp: TensorGroup,
        *,
        start: Start,
        sequence: bool,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.tp, self.sequence = tp, sequence
        self.weight = start.rows((size_out, size_in), tp)
        zeros = torch.zeros(size_out // tp.size)
        self.bias = split_parameter(zeros, 0, tp) if bias else None

    def forward(self, x: torch.Tensor, skip_bias: bool = False) -> torch.Tensor:
        """[sequence, batch, in] -> [sequence, batch, this rank's part of out]; gathers a split
        sequence first.
        """
        x = gather_sequence(x, self.tp) if self.sequence else copy_to_tensor(x, self.tp)
        return F.linear(x, self.weight, None if skip_bias else self.bias)


class RowParallelLinear(nn.Module):
    """y = x W^T with W cut by input features: [s, b, in / tp] -> [s, b, out]; the caller adds
    `bias` once.

    With `sequence` the sum is scattered over the sequence.
    """

    def __init__(
        self,
        size_in: int,
        size_out: int,
        tp: TensorGroup,
        *,
        start: Start,
        sequence: bool,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.tp, self.sequence = tp, sequence
        self.weight = start.columns((size_out, size_in), tp)
        self.bias = nn.Parameter(torch.zeros(size_out)) if bias else None
        if sequence:
            mark_partial(self)

    def forward(self, x: torch.Tensor, with_bias: bool = False) -> torch.Tensor:
        """`with_bias`: one rank only, where nothing has to be summed before the bias."""
        if self.tp.size == 1:
            return F.linear(x, self.weight, self.bias if with_bias else None)
        y = F.linear(x, self.weight)
        return (
            reduce_scatter_sequence(y, self.tp) if self.sequence else reduce_from_tensor(y, self.tp)
        )


class VocabParallelEmbedding(nn.Module):
    """Word embedding cut by rows of the vocabulary: tokens [b, s] -> [b, s, h], whole on every
    rank.
    """

    def __init__(
        self,
        vocab: tuple[int, int],
        hidden: int,
        tp: TensorGroup,
        start: Start,
    ) -> None:
        """`vocab`: (tokens that exist, rows with the padding)."""
        super().__init__()
        self.tp = tp
        self.weight = start.rows((vocab[1], hidden), tp)
        self.first = self.weight.shape[0] * tp.rank

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Token ids -> hidden vectors: each rank looks its rows up, and the sum over ranks is
        whole.
        """
        if self.tp.size == 1:
            return F.embedding(tokens, self.weight)
        local = tokens - self.first
        elsewhere = (local < 0) | (local >= self.weight.shape[0])
        rows = F.embedding(local.masked_fill(elsewhere, 0), self.weight)
        return reduce_from_tensor(rows.masked_fill(elsewhere.unsqueeze(-1), 0.0), self.tp)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[s, b, h] -> this rank's columns of the logits [s, b, V / tp], those of the padding among
        them: whoever reads them knows how many tokens exist.
        """
        return F.linear(hidden, self.weight)
