"""Other libraries' kernels with the arguments of ours, where they are installed; and torch's own
attention.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from hangdoctor.train.kernels import softmax
from hangdoctor.train.kernels.registry import FLAVOURS

Function = Callable[..., Any]
_LIGER = "liger_kernel.transformers.functional"


def installed(package: str) -> bool:
    """Whether a package can be imported, without doing so."""
    return importlib.util.find_spec(package) is not None


def _liger(name: str) -> Function:
    found: Function = getattr(importlib.import_module(_LIGER), name)
    return found


def _liger_cross_entropy() -> Function:
    function = _liger("liger_cross_entropy")
    return lambda logits, target, _: function(logits, target, reduction="none")


def _liger_linear() -> Function:
    function = _liger("liger_fused_linear_cross_entropy")
    return lambda hidden, weight, target, _: function(hidden, weight, target, reduction="none")


def _liger_layer_norm() -> Function:
    return _liger("liger_layer_norm")


def _liger_rms_norm() -> Function:
    function = _liger("liger_rms_norm")
    return lambda x, weight, eps: function(x, weight, eps, in_place=False)


def _liger_add_rms_norm() -> Function:
    function = _liger("liger_fused_add_rms_norm")

    def call(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> Any:
        normed, total = function(x, residual, weight, eps, in_place=False)
        return total, normed

    return call


def _flash_attention() -> Function:
    function = importlib.import_module("flash_attn").flash_attn_func

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = function(*(t.transpose(1, 2) for t in (q, k, v)), causal=True)
        return made.transpose(1, 2)

    return call


def _flash_cross_entropy() -> Function:
    function = importlib.import_module("flash_attn.ops.triton.cross_entropy").cross_entropy_loss
    return lambda logits, target, _: function(logits, target)[0]


def _flash_rotary() -> Function:
    function = importlib.import_module("flash_attn.layers.rotary").apply_rotary_emb

    def call(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        tables = (t[:, 0, 0].to(x.dtype) for t in (cos, sin))
        made: torch.Tensor = function(x.transpose(0, 1), *tables)
        return made.transpose(0, 1)

    return call


# peer -> (package, kernel -> what imports its function).
PEERS: dict[str, tuple[str, dict[str, Callable[[], Function]]]] = {
    "liger": (
        "liger_kernel",
        {
            "cross_entropy": _liger_cross_entropy,
            "linear_cross_entropy": _liger_linear,
            "layer_norm": _liger_layer_norm,
            "rms_norm": _liger_rms_norm,
            "add_rms_norm": _liger_add_rms_norm,
        },
    ),
    "flash": (
        "flash_attn",
        {
            "attention": _flash_attention,
            "cross_entropy": _flash_cross_entropy,
            "rotary": _flash_rotary,
        },
    ),
}


# ---------------------------------------------------------------------- attention, ours and torch's


def _by_backend(name: str) -> Function:
    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with sdpa_kernel(getattr(SDPBackend, name)):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    return call


def _with(probabilities: Function) -> Function:
    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scale = q.shape[-1] ** -0.25
        scores = (q * scale) @ (k * scale).transpose(-1, -2)
        made: torch.Tensor = probabilities(scores, 1.0) @ v
        return made

    return call


# `triton`: what the trainer does with --model.attention core; `torch`: what it does by itself.
ATTENTION: dict[str, Function] = {
    "reference": _with(softmax.reference),
    "torch": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    "cudnn": _by_backend("CUDNN_ATTENTION"),
    "triton": _with(softmax.fused),
}


def _plain_cross_entropy(logits: torch.Tensor, target: torch.Tensor, _: Any) -> torch.Tensor:
    return F.cross_entropy(logits.float(), target, reduction="none")


def _plain_linear(h: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, _: Any) -> Any:
    return F.cross_entropy(F.linear(h, weight).float(), target, reduction="none")


# What torch.compile is given, where that is not the reference.
TO_COMPILE: dict[str, Function] = {
    "cross_entropy": _plain_cross_entropy,
    "linear_cross_entropy": _plain_linear,
}


def own(kernel: str) -> dict[str, Function]:
    """Flavour -> function of the trainer; `torch` only where that is not the reference."""
    table = ATTENTION if kernel == "attention" else FLAVOURS[kernel]
    reference = table["reference"]
    return {f: made for f, made in table.items() if f == "reference" or made is not reference}
