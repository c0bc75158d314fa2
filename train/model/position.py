"""Rotary position embedding and ALiBi biases.

Both tables are plain attributes, never buffers: a buffer would follow the model into bf16, and a
table with -inf or with large angles does not survive that.
"""

from __future__ import annotations

import math

import torch


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
