"""GPT-2 as Hugging Face has it: Conv1D matrices are the other way round, q, k and v in three blocks."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import torch

from ..config import Config
from ..options import ConfigError
from .tensors import Tensors

_ACTIVATIONS = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu"}
# name there -> name here, whether turned
_LAYER = {
    "ln_1": ("norm", False),
    "attn.c_proj": ("attention.out", True),
    "ln_2": ("mlp_norm", False),
    "mlp.c_fc": ("mlp.up", True),
    "mlp.c_proj": ("mlp.down", True),
}


def options(there: dict[str, Any]) -> dict[str, Any]:
    """This trainer's model options for its config.json.

    Raises:
        ConfigError: something that this trainer's model does not have.
    """
    activation = there.get("activation_function", "gelu_new")
    if activation not in _ACTIVATIONS:
        raise ConfigError(f"activation_function {activation}: known are {', '.join(_ACTIVATIONS)}")
    for name in ("scale_attn_by_inverse_layer_idx", "add_cross_attention"):
        if there.get(name):
            raise ConfigError(f"{name}: this trainer's model has no such thing")
    return {
        "layers": there["n_layer"],
        "hidden_size": there["n_embd"],
        "heads": there["n_head"],
        "ffn_hidden_size": there.get("n_inner") or 4 * there["n_embd"],
        "seq_length": there["n_positions"],
        "norm_eps": there.get("layer_norm_epsilon", 1e-5),
        "activation": _ACTIVATIONS[activation],
        "position": "learned",
        "normalization": "layernorm",
        "linear_bias": True,
        "parallel_block": False,
        "embedding_norm": False,
        "tie_embeddings": there.get("tie_word_embeddings", True),
    }


def unfit(config: Config) -> str:
    """What of a model GPT-2 does not have; "" where it has all."""
    m = config.model
    wanted = {
        "position": ("learned",),
        "normalization": ("layernorm",),
        "activation": ("gelu_tanh", "gelu"),
        "linear_bias": (True,),
        "parallel_block": (False,),
        "embedding_norm": (False,),
    }
    return ", ".join(
        f"model.{n} {getattr(m, n)}" for n, v in wanted.items() if getattr(m, n) not in v
    )


def described(config: Config, vocab: int, end: int) -> dict[str, Any]:
    """config.json for a model."""
    m = config.model
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_layer": m.layers,
        "n_embd": m.hidden_size,
        "n_head": m.heads,
        "n_inner": config.ffn_hidden_size,
        "n_positions": m.seq_length,
        "vocab_size": vocab,
        "activation_function": "gelu_new" if m.activation == "gelu_tanh" else "gelu",
        "layer_norm_epsilon": m.norm_eps,
        "resid_pdrop": m.hidden_dropout,
        "embd_pdrop": m.hidden_dropout,
        "attn_pdrop": m.attention_dropout,
        "tie_word_embeddings": m.tie_embeddings,
        "bos_token_id": end,
        "eos_token_id": end,
    }


def given(ours: Tensors, config: Config) -> Tensors:
    """Names and shapes there, from those here."""
    layers, heads = config.model.layers, config.model.heads
    made = {
        "transformer.wte.weight": ours["0.weight"],
        "transformer.wpe.weight": ours["1.position"],
    }
    for i in range(layers):
        here, there = f"{i + 2}", f"transformer.h.{i}"
        for kind in ("weight", "bias"):
            for name, (own, is_turned) in _LAYER.items():
                made[f"{there}.{name}.{kind}"] = _turned(ours[f"{here}.{own}.{kind}"], is_turned)
            qkv = ours[f"{here}.attention.qkv.{kind}"].unflatten(0, (heads, 3, -1))
            blocks = qkv.transpose(0, 1).flatten(0, 2)
            made[f"{there}.attn.c_attn.{kind}"] = _turned(blocks, True)
    for kind in ("weight", "bias"):
        made[f"transformer.ln_f.{kind}"] = ours[f"{layers + 2}.{kind}"]
    if not config.model.tie_embeddings:
        made["lm_head.weight"] = ours[f"{layers + 3}.weight"]
    return made


def taken(theirs: Tensors, config: Config, wanted: Container[int]) -> Tensors:
    """Names and shapes here, from those there; published files leave the first word out. Of the
    transformer layers those whose pipeline numbers are `wanted`.
    """
    found = {name.removeprefix("transformer."): tensor for name, tensor in theirs.items()}
    layers, heads = config.model.layers, config.model.heads
    made = {"0.weight": found["wte.weight"], "1.position": found["wpe.weight"]}
    for i in (n for n in range(layers) if n + 2 in wanted):
        here, there = f"{i + 2}", f"h.{i}"
        for kind in ("weight", "bias"):
            for name, (own, is_turned) in _LAYER.items():
                made[f"{here}.{own}.{kind}"] = _turned(found[f"{there}.{name}.{kind}"], is_turned)
            blocks = _turned(found[f"{there}.attn.c_attn.{kind}"], True).unflatten(
                0, (3, heads, -1)
            )
            made[f"{here}.attention.qkv.{kind}"] = blocks.transpose(0, 1).flatten(0, 2)
    for kind in ("weight", "bias"):
        made[f"{layers + 2}.{kind}"] = found[f"ln_f.{kind}"]
    if not config.model.tie_embeddings:
        made[f"{layers + 3}.weight"] = found["lm_head.weight"]
    return made


def _turned(tensor: torch.Tensor, is_turned: bool) -> torch.Tensor:
    return tensor.t().contiguous() if is_turned and tensor.dim() == 2 else tensor.contiguous()
