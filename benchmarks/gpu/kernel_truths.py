"""The same functions in float64, written once more and by torch alone: what kernels are held to."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

Tensor = torch.Tensor


def _normed(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    if bias is not None:
        return F.layer_norm(x, (x.shape[-1],), weight, bias, eps)
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * weight


def _softmax(scores: Tensor, scale: float) -> Tensor:
    queries, keys = scores.shape[-2:]
    ahead = torch.ones(queries, keys, dtype=torch.bool, device=scores.device).triu(1)
    return (scores * scale).masked_fill(ahead, -math.inf).softmax(-1)


def _rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    pairs = torch.complex(x[..., :half], x[..., half:]) * torch.complex(cos, sin)
    return torch.cat((pairs.real, pairs.imag), dim=-1)


def _rotary_qkv(qkv: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
    return (
        _rotary(qkv[..., 0, :], cos, sin),
        _rotary(qkv[..., 1, :], cos, sin),
        qkv[..., 2, :].clone(),
    )


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _softmax(q @ k.transpose(-1, -2), q.shape[-1] ** -0.5) @ v


def _cross_entropy(logits: Tensor, target: Tensor, *_: Any) -> Tensor:
    return logits.logsumexp(-1) - logits.gather(-1, target[:, None])[:, 0]


# kernel -> function of the same arguments.
TRUTHS: dict[str, Callable[..., Any]] = {
    "bias_gelu": lambda x, bias: F.gelu(x + bias, approximate="tanh"),
    "bias_dropout_add": lambda x, bias, residual, *_: x + bias + residual,
    "softmax": _softmax,
    "layer_norm": lambda x, weight, bias, eps: _normed(x, weight, bias, eps),
    "rms_norm": lambda x, weight, eps: _normed(x, weight, None, eps),
    "add_layer_norm": lambda x, r, weight, bias, eps: (x + r, _normed(x + r, weight, bias, eps)),
    "add_rms_norm": lambda x, r, weight, eps: (x + r, _normed(x + r, weight, None, eps)),
    "cross_entropy": _cross_entropy,
    "linear_cross_entropy": lambda h, weight, target, *_: _cross_entropy(h @ weight.T, target),
    "rotary": _rotary,
    "rotary_qkv": _rotary_qkv,
    "attention": _attention,
}


def difference(got: Tensor, truth: Tensor) -> float:
    """|got - truth| / |truth|, NaN where anything is not finite."""
    wide = got.detach().double()
    size = truth.detach().norm()
    return float((wide - truth.detach()).norm() / size.clamp_min(1e-30))
