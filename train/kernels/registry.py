"""Which implementation of each kernel is used, and one line that says so and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..options import ConfigError
from ..tensor_parallel.cross_entropy import vocab_parallel_cross_entropy
from . import (
    adam,
    add_norm,
    apex_support,
    bias_dropout_add,
    bias_gelu,
    cross_entropy,
    linear_cross_entropy,
    norm,
    rotary,
    softmax,
    triton_support,
)

# kernel -> flavour -> function. `torch`: what torch itself fuses. Where apex has no such kernel it
# has no entry.
FLAVOURS: dict[str, dict[str, Callable[..., Any]]] = {
    "bias_gelu": {
        "reference": bias_gelu.reference,
        "torch": bias_gelu.torch_fused,
        "triton": bias_gelu.fused,
    },
    "bias_dropout_add": {
        "reference": bias_dropout_add.reference,
        "torch": bias_dropout_add.torch_fused,
        "triton": bias_dropout_add.fused,
    },
    "softmax": {
        "reference": softmax.reference,
        "torch": softmax.torch_fused,
        "triton": softmax.fused,
        "apex": softmax.apex,
    },
    "layer_norm": {
        "reference": norm.layer_norm_reference,
        "torch": norm.layer_norm_torch,
        "triton": norm.layer_norm_fused,
        "apex": norm.layer_norm_apex,
    },
    "rms_norm": {
        "reference": norm.rms_norm_reference,
        "torch": norm.rms_norm_torch,
        "triton": norm.rms_norm_fused,
        "apex": norm.rms_norm_apex,
    },
    "cross_entropy": {
        "reference": cross_entropy.reference,
        "torch": vocab_parallel_cross_entropy,
        "triton": cross_entropy.fused,
        "apex": cross_entropy.apex,
    },
    "linear_cross_entropy": {
        "reference": linear_cross_entropy.reference,
        "torch": linear_cross_entropy.torch_chunked,
        "triton": linear_cross_entropy.fused,
    },
    "rotary": {
        "reference": rotary.reference,
        "torch": rotary.reference,
        "triton": rotary.fused,
    },
    "rotary_qkv": {
        "reference": rotary.reference_qkv,
        "torch": rotary.reference_qkv,
        "triton": rotary.fused_qkv,
    },
    "add_layer_norm": {
        "reference": add_norm.layer_norm_add_reference,
        "torch": add_norm.layer_norm_add_torch,
        "triton": add_norm.layer_norm_add_fused,
    },
    "add_rms_norm": {
        "reference": add_norm.rms_norm_add_reference,
        "torch": add_norm.rms_norm_add_torch,
        "triton": add_norm.rms_norm_add_fused,
    },
    "adam": {
        "reference": adam.reference,
        "torch": adam.torch_fused,
        "triton": adam.fused,
        "apex": adam.apex,
    },
}


@dataclass(frozen=True)
class Kernels:
    """The chosen functions.

    `fuses_bias`: the MLP hands its first bias to bias_gelu rather than to its product.
    """

    bias_gelu: Callable[..., torch.Tensor]
    bias_dropout_add: Callable[..., torch.Tensor]
    softmax: Callable[..., torch.Tensor]
    layer_norm: Callable[..., torch.Tensor]
    rms_norm: Callable[..., torch.Tensor]
    cross_entropy: Callable[..., torch.Tensor]
    linear_cross_entropy: Callable[..., torch.Tensor]
    rotary: Callable[..., torch.Tensor]
    rotary_qkv: Callable[..., rotary.Turned]
    add_layer_norm: Callable[..., add_norm.Pair]
    add_rms_norm: Callable[..., add_norm.Pair]
    adam: Callable[..., torch.optim.Optimizer]
    used: Mapping[str, str]
    why: str

    @property
    def fuses_bias(self) -> bool:
        """Whether the bias of the MLP is added inside the GELU kernel."""
        return self.used["bias_gelu"] != "torch"

    @property
    def fuses_norm(self) -> bool:
        """Whether the residual is added inside the norm's kernel."""
        return self.used["add_layer_norm"] != "torch"

    def line(self) -> str:
        """The line at the start of a training."""
        flavours = sorted(set(self.used.values()))
        parts = [f"{f}: {', '.join(k for k, v in self.used.items() if v == f)}" for f in flavours]
        return f"kernels: {'; '.join(parts)} ({self.why})"


# Outside of the transformer block, which is what --compile compiles.
_AROUND = ("cross_entropy", "linear_cross_entropy", "adam")


def _build(order: tuple[str, ...], why: str, *, around: tuple[str, ...] = ()) -> Kernels:
    """`around`: the order for what is outside of the transformer block, where it is another."""
    used = {
        name: next(f for f in (around if name in _AROUND and around else order) if f in table)
        for name, table in FLAVOURS.items()
    }
    return Kernels(
        **{name: FLAVOURS[name][flavour] for name, flavour in used.items()}, used=used, why=why
    )


def choose(wanted: str, device: torch.device, *, compiled: bool = False) -> Kernels:
    """Kernels for `--kernels wanted` on this device; `compiled`: inductor makes the block's own.

    Triton's inside of a compiled block of 1.3B ended with an illegal memory access on an H200 (torch
    2.11), which `auto` keeps clear of.

    Raises:
        ConfigError: triton or apex were asked for and cannot be used; the message says why.
    """
    if wanted == "reference":
        return _build(("reference",), "--kernels reference")
    if wanted == "torch":
        return _build(("torch",), "--kernels torch: what torch itself fuses")
    no_triton = triton_support.unavailable(device)
    if wanted == "triton":
        if no_triton:
            raise ConfigError(f"--kernels triton: {no_triton}")
        where = "in Triton's interpreter, slow" if triton_support.interpreted() else "requested"
        return _build(("triton",), f"--kernels triton, {where}")
    if wanted == "apex":
        no_apex = apex_support.unavailable()
        if no_apex:
            raise ConfigError(f"--kernels apex: {no_apex}")
        return _build(("apex", "torch"), "--kernels apex; torch where apex has none")
    if device.type != "cuda":
        return _build(("torch",), "--kernels auto: torch's own are the fastest on CPU")
    if no_triton:
        return _build(("torch",), f"--kernels auto: {no_triton}")
    if compiled:
        why = "--kernels auto: the block's are compiled, Triton around it"
        return _build(("torch",), why, around=("triton",))
    return _build(("triton",), "--kernels auto: Triton on a GPU")
