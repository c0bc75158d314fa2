"""Rotary position embedding (Su et al. 2021): pairs (i, i + d/2) of a head turn by an angle.

Sequences first, as everywhere in the model: x is [seq, batch, heads, d], the tables are
[seq, batch or 1, 1, d / 2] in float32.
"""

from __future__ import annotations

import torch

Turned = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def reference(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x: [seq, batch, heads, d] -> the same, turned; arithmetic in float32 or wider.

    cos, sin: [seq, batch or 1, 1, d / 2].
    """
    wide = x if x.dtype == torch.float64 else x.float()
    first, second = wide.chunk(2, dim=-1)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return turned.to(x.dtype)


def reference_qkv(qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Turned:
    """qkv: [seq, batch, heads, 3, d] -> query and key turned, value as it is: [seq, batch, heads, d]
    each. `qkv` is given up: a flavour may turn it in place.
    """
    q, k, v = qkv.unbind(dim=3)
    return reference(q, cos, sin), reference(k, cos, sin), v
