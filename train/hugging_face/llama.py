"""Llama as Hugging Face has it: q, k, v, gate and values are matrices of their own."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import torch

from ..config import Config
from ..options import ConfigError
from .tensors import Tensors

# name there -> name here
_LAYER = {
    "input_layernorm": "norm",
    "self_attn.o_proj": "attention.out",
    "post_attention_layernorm": "mlp_norm",
    "mlp.down_proj": "mlp.down",
}
_FIXED = {
    "position": "rope",
    "normalization": "rmsnorm",
    "activation": "swiglu",
    "linear_bias": False,
    "parallel_block": False,
    "embedding_norm": False,
}


def options(there: dict[str, Any]) -> dict[str, Any]:
    """This trainer's model options for its config.json.

    Raises:
        ConfigError: something that this trainer's model does not have.
    """
    rope = {**(there.get("rope_scaling") or {}), **(there.get("rope_parameters") or {})}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise ConfigError(f"rope_type {kind}: this trainer's model has unscaled frequencies alone")
    if there.get("hidden_act", "silu") != "silu":
        raise ConfigError(f"hidden_act {there['hidden_act']}: known is silu")
    for name in ("attention_bias", "mlp_bias"):
        if there.get(name):
            raise ConfigError(f"{name}: this trainer has biases everywhere or nowhere")
    width = there["hidden_size"] // there["num_attention_heads"]
    if there.get("head_dim") not in (None, width):
        raise ConfigError(f"head_dim {there['head_dim']}: here it is hidden_size / heads = {width}")
    return _FIXED | {
        "layers": there["num_hidden_layers"],
        "hidden_size": there["hidden_size"],
        "heads": there["num_attention_heads"],
        "ffn_hidden_size": there["intermediate_size"],
        "seq_length": there["max_position_embeddings"],
        "norm_eps": there.get("rms_norm_eps", 1e-6),
        "rotary_base": rope.get("rope_theta", there.get("rope_theta", 10000.0)),
        "tie_embeddings": there.get("tie_word_embeddings", False),
    }


def unfit(config: Config) -> str:
    """What of a model Llama does not have; "" where it has all."""
    m = config.model
    return ", ".join(f"model.{n} {getattr(m, n)}" for n, v in _FIXED.items() if getattr(m, n) != v)


def described(config: Config, vocab: int, end: int) -> dict[str, Any]:
    """config.json for a model."""
    m = config.model
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": m.layers,
        "hidden_size": m.hidden_size,
        "num_attention_heads": m.heads,
        "num_key_value_heads": m.heads,
        "head_dim": m.hidden_size // m.heads,
        "intermediate_size": config.ffn_hidden_size,
        "max_position_embeddings": m.seq_length,
        "vocab_size": vocab,
        "hidden_act": "silu",
        "rms_norm_eps": m.norm_eps,
        "rope_theta": m.rotary_base,
        "rope_parameters": {"rope_type": "default", "rope_theta": m.rotary_base},
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": m.attention_dropout,
        "tie_word_embeddings": m.tie_embeddings,
        "bos_token_id": end,
        "eos_token_id": end,
    }


def given(ours: Tensors, config: Config) -> Tensors:
    """Names and shapes there, from those here."""
    layers, heads = config.model.layers, config.model.heads
    made = {"model.embed_tokens.weight": ours["0.weight"]}
    for i in range(layers):
        here, there = f"{i + 2}", f"model.layers.{i}"
        for name, own in _LAYER.items():
            made[f"{there}.{name}.weight"] = ours[f"{here}.{own}.weight"]
        qkv = ours[f"{here}.attention.qkv.weight"].unflatten(0, (heads, 3, -1))
        for j, name in enumerate("qkv"):
            made[f"{there}.self_attn.{name}_proj.weight"] = qkv[:, j].flatten(0, 1).contiguous()
        pairs = ours[f"{here}.mlp.up.weight"].unflatten(0, (-1, 2))
        for j, name in enumerate(("gate", "up")):
            made[f"{there}.mlp.{name}_proj.weight"] = pairs[:, j].contiguous()
    made["model.norm.weight"] = ours[f"{layers + 2}.weight"]
    if not config.model.tie_embeddings:
        made["lm_head.weight"] = ours[f"{layers + 3}.weight"]
    return made


def taken(theirs: Tensors, config: Config, wanted: Container[int]) -> Tensors:
    """Names and shapes here, from those there; of the transformer layers those whose pipeline
    numbers are `wanted`. Keys and values that several heads share become one for each head: the
    same numbers come out.
    """
    layers, heads = config.model.layers, config.model.heads
    made = {"0.weight": theirs["model.embed_tokens.weight"]}
    for i in (n for n in range(layers) if n + 2 in wanted):
        here, there = f"{i + 2}", f"model.layers.{i}"
        for name, own in _LAYER.items():
            made[f"{here}.{own}.weight"] = theirs[f"{there}.{name}.weight"]
        own_heads = [
            _a_head_each(theirs[f"{there}.self_attn.{name}_proj.weight"], heads, config)
            for name in "qkv"
        ]
        made[f"{here}.attention.qkv.weight"] = torch.stack(own_heads, dim=1).flatten(0, 2)
        both = [theirs[f"{there}.mlp.{name}_proj.weight"] for name in ("gate", "up")]
        made[f"{here}.mlp.up.weight"] = torch.stack(both, dim=1).flatten(0, 1)
    made[f"{layers + 2}.weight"] = theirs["model.norm.weight"]
    if not config.model.tie_embeddings:
        made[f"{layers + 3}.weight"] = theirs["lm_head.weight"]
    return made


def _a_head_each(weight: torch.Tensor, heads: int, config: Config) -> torch.Tensor:
    by_head = weight.unflatten(0, (-1, config.model.hidden_size // heads))
    return by_head.repeat_interleave(heads // len(by_head), dim=0)
