"""Rotary position embedding and ALiBi biases.

Both tables are plain attributes, never buffers: a buffer would follow the model into bf16, and a
table with -inf or with large angles does not survive that.
"""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F


class Rotary:
    """RoPE (Su et al. 2021): pairs (i, i + d/2) of a head turn by position x base^(-2i/d)."""

    def __init__(self, width: int, base: float) -> None:
        self.width, self.base = width, base
        self._tables: dict[torch.device, tuple[torch.Tensor, torch.Tensor]] = {}

    def prepare(self, length: int, device: torch.device) -> None:
        """Have the tables for sequences up to `length`: outside of what is compiled or computed
        again, where the first time must be as all others.
        """
        if device in self._tables and len(self._tables[device][0]) >= length:
            return
        half = torch.arange(0, self.width, 2, dtype=torch.float64, device=device) / self.width
        places = torch.arange(length, dtype=torch.float64, device=device)
        angles = torch.outer(places, self.base**-half)[:, None, None, :]
        self._tables[device] = (angles.cos().float(), angles.sin().float())

    def tables(
        self, length: int, device: torch.device, positions: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines [length, 1, 1, width / 2], float32, cut from the longest made so far;
        [length, batch, 1, width / 2] for `positions` [batch, length].
        """
        self.prepare(length, device)
        cos, sin = self._tables[device]
        if positions is None:
            return cos[:length], sin[:length]
        places = positions.t()
        return cos[places, 0], sin[places, 0]


def alibi_slopes(heads: int) -> list[float]:
    """Slopes of Press et al. 2022: a geometric sequence from 2^(-8/n); other counts take every
    second of the next power.
    """

    def of_power(n: int) -> list[float]:
        return [2.0 ** (-8.0 * (i + 1) / n) for i in range(n)]

    power = 2 ** math.floor(math.log2(heads))
    return of_power(power) + of_power(2 * power)[0::2][: heads - power]


def alibi_bias(slopes: torch.Tensor, length: int) -> torch.Tensor:
    """[heads, 1, length], float32: slope x key position; equal to -slope x distance within a
    softmax row.
    """
    return slopes[:, None, None] * torch.arange(length, dtype=torch.float32, device=slopes.device)


# Earlier ones round scores in half precision where no fused kernel fits, and with them the bias.
FUSES_ALIBI = torch.torch_version.TorchVersion(torch.__version__) >= (2, 5)
_DIGIT = 256  # bf16 has the whole numbers up to here
_PIECES = 3  # of a slope in half precision: 24 bits


def alibi_columns(
    slopes: torch.Tensor, length: int, dtype: torch.dtype, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """[heads, 1, n] beside the queries and [length, n] beside the keys: their product, times
    `scale`, is the bias of `alibi_bias`, so that a fused attention adds it by itself.

    In half precision a slope is a sum of three numbers and a position one of digits, each exact:
    products are added up in fp32.
    """
    places = torch.arange(length, device=slopes.device)
    steep = slopes.double() / scale
    if dtype == torch.float32:
        return steep.float()[:, None, None], places.float()[:, None]
    pieces, rest = [], steep
    for _ in range(_PIECES):
        pieces.append(rest.to(dtype))
        rest = rest - pieces[-1].double()
    beside_queries, beside_keys, unit = [], [], 1
    while unit < length:
        digit = (places // unit % _DIGIT).to(dtype)
        beside_queries += [piece * unit for piece in pieces]
        beside_keys += [digit] * _PIECES
        unit *= _DIGIT
    return torch.stack(beside_queries, -1)[:, None], torch.stack(beside_keys, -1)


def with_alibi(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slopes: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """[b, heads, s, d] each -> the same, wider: to a multiple of 8, as fused kernels want it; what
    is beyond d in their result is 0.
    """
    steep, places = alibi_columns(slopes, q.shape[2], q.dtype, scale)
    columns = places.shape[-1]
    pad = -(q.shape[-1] + columns) % 8
    q = torch.cat([q, F.pad(steep, (0, pad)).expand(*q.shape[:-1], -1)], dim=-1)
    k = torch.cat([k, F.pad(places, (0, pad)).expand(*k.shape[:-1], -1)], dim=-1)
    return q, k, F.pad(v, (0, columns + pad))
