"""Which implementation of each kernel is used, and one line that says so and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from ..tensor_parallel.cross_entropy import vocab_parallel_cross_entropy
from . import bias_dropout_add, bias_gelu, norm, softmax


@dataclass(frozen=True)
class Kernels:
    """The chosen functions. `fuses_bias`: the MLP hands its first bias to bias_gelu rather than to its product."""

    bias_gelu: Callable[..., torch.Tensor]
    bias_dropout_add: Callable[..., torch.Tensor]
    softmax: Callable[..., torch.Tensor]
    layer_norm: Callable[..., torch.Tensor]
    rms_norm: Callable[..., torch.Tensor]
    cross_entropy: Callable[..., torch.Tensor]
    adam: Callable[..., torch.optim.Optimizer]
    fuses_bias: bool
    used: dict[str, str] = field(default_factory=dict)
    why: str = ""

    def line(self) -> str:
        return "kernels: " + ", ".join(f"{k}={v}" for k, v in self.used.items()) + f" ({self.why})"


def choose(wanted: str, device: torch.device) -> Kernels:
    return torch_kernels(f"--kernels {wanted}: no GPU, torch's own are the fastest on CPU")


def torch_kernels(why: str) -> Kernels:
    """torch's own fused functions."""
    return Kernels(
        bias_gelu.torch_fused,
        bias_dropout_add.torch_fused,
        softmax.torch_fused,
        norm.layer_norm_torch,
        norm.rms_norm_torch,
        vocab_parallel_cross_entropy,
        fused_adamw,
        False,
        {name: "torch" for name in ("bias_gelu", "bias_dropout_add", "softmax", "norm", "cross_entropy", "adam")},
        why,
    )


def fused_adamw(groups: Any, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, fused=True, **options)
