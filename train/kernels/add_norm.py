"""The residual addition and the normalization behind it.

sum = residual + x (+ x_bias), in the residual's dtype; normed = norm(sum), in the weight's dtype: so
an fp32 residual stream stays one.
"""

from __future__ import annotations

import torch

from .norm import layer_norm_reference, layer_norm_torch, rms_norm_reference, rms_norm_torch

Pair = tuple[torch.Tensor, torch.Tensor]


def _added(x: torch.Tensor, residual: torch.Tensor, x_bias: torch.Tensor | None) -> torch.Tensor:
    return residual + (x if x_bias is None else x + x_bias)


def _as(dtype: torch.dtype, *weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(w.to(dtype) for w in weights)


def layer_norm_add_reference(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float,
    *,
    x_bias: torch.Tensor | None = None,
) -> Pair:
    """x, residual: [..., h]; weight, bias, x_bias: [h] -> (sum, normed)."""
    total = _added(x, residual, x_bias)
    normed = layer_norm_reference(total, *_as(total.dtype, weight, bias), eps)
    return total, normed.to(weight.dtype)


def rms_norm_add_reference(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    *,
    x_bias: torch.Tensor | None = None,
) -> Pair:
    """x, residual: [..., h]; weight, x_bias: [h] -> (sum, normed)."""
    total = _added(x, residual, x_bias)
    normed = rms_norm_reference(total, weight.to(total.dtype), eps)
    return total, normed.to(weight.dtype)


def layer_norm_add_torch(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float,
    *,
    x_bias: torch.Tensor | None = None,
) -> Pair:
    """The same by torch's own operations."""
    total = _added(x, residual, x_bias)
    normed = layer_norm_torch(total, *_as(total.dtype, weight, bias), eps)
    return total, normed.to(weight.dtype)


def rms_norm_add_torch(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    *,
    x_bias: torch.Tensor | None = None,
) -> Pair:
    """The same by torch's own operations."""
    total = _added(x, residual, x_bias)
    normed = rms_norm_torch(total, weight.to(total.dtype), eps)
    return total, normed.to(weight.dtype)
