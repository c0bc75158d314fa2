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
        self._tables: dict[tuple[int, torch.device], tuple[torch.Tensor, torch.Tensor]] = {}

    def _table(self, length: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        key = (length, device)
        if key not in self._tables:
            half = torch.arange(0, self.width, 2, dtype=torch.float64, device=device) / self.width
            angles = torch.outer(
                torch.arange(length, dtype=torch.float64, device=device), self.base**-half
            )
            both = torch.cat((angles, angles), dim=-1)[:, None, None, :]
            self._tables[key] = (both.cos().float(), both.sin().float())
        return self._tables[key]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x: [s, b, heads, d], s positions from 0."""
        cos, sin = self._table(x.shape[0], x.device)
        wide = x.float()
        first, second = wide.chunk(2, dim=-1)
        return (wide * cos + torch.cat((-second, first), dim=-1) * sin).to(x.dtype)


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
