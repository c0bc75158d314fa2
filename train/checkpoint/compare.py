"""Whether a checkpoint belongs to the training that wants to load it; every refusal names both
values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..config import Config
from ..options import ConfigError
from .files import Saved

# Options that change shapes or what the weights mean; no override makes these fit.
_MODEL = (
    "layers hidden_size heads ffn_hidden_size position rotary_base normalization activation parallel_block embedding_norm"
    " tie_embeddings linear_bias"
).split()
# What checkpoints without the option were trained with.
_BEFORE = {
    "activation": "gelu_tanh",
    "linear_bias": True,
    "reset_position_ids": False,
    "reset_attention_mask": False,
    "eod_mask_loss": False,
    "curriculum": "",
    "kind": "adam",
}
# Options whose change makes the resumed training another one: allowed with --checkpoint.override.
_CHOSEN = (
    ("train", "seed"),
    ("train", "curriculum"),
    ("data", "path"),
    ("data", "split"),
    ("data", "tokenizer"),
    ("data", "reset_position_ids"),
    ("data", "reset_attention_mask"),
    ("data", "eod_mask_loss"),
    ("model", "seq_length"),
    ("optimizer", "beta1"),
    ("optimizer", "beta2"),
    ("optimizer", "eps"),
    ("optimizer", "weight_decay"),
    ("train", "clip_grad"),
)
# What shapes the shards of a layout: padding rows, layers a stage. The universal format knows none
# of it.
_SHARDS = (
    ("parallel", "zero_stage"),
    ("parallel", "ulysses"),
    ("parallel", "partition"),
    ("train", "precision"),
    ("model", "vocab_multiple"),
    ("optimizer", "kind"),
)


def check_same_training(saved: Saved, config: Config, now: dict[str, Any]) -> None:
    """Raises ConfigError with every difference that matters, one a line."""
    complaints = [*_model(saved, now), *_layout(saved, config, now)]
    if not config.checkpoint.override:
        complaints += [*_schedule(saved, now), *_chosen(saved, now)]
    if complaints:
        raise ConfigError(
            "\n".join([f"checkpoint {saved.folder} does not fit this configuration:", *complaints])
        )


def _model(saved: Saved, now: dict[str, Any]) -> Iterator[str]:
    then, new = saved.meta["config"]["model"], now["config"]["model"]
    names = [*_MODEL, *(["seq_length"] if new["position"] == "learned" else [])]
    for name in names:
        old = then.get(name, _BEFORE.get(name))
        if old != new[name]:
            yield f"  --model.{name} is {new[name]}, the checkpoint has {old}"
    if saved.meta["vocabulary"] != now["vocabulary"]:
        yield f"  the vocabulary has {now['vocabulary']} tokens, the checkpoint's {saved.meta['vocabulary']}"


def _layout(saved: Saved, config: Config, now: dict[str, Any]) -> Iterator[str]:
    if config.checkpoint.universal:
        if not saved.meta.get("universal"):
            yield f"  --checkpoint.universal: convert it first: python -m hangdoctor.train.checkpoint.universal --input {saved.folder}"
        return
    if saved.meta.get("universal"):
        yield "  it is a universal checkpoint: add --checkpoint.universal true"
    then, new = saved.meta["layout"], now["layout"]
    if then != new:
        sizes = " x ".join(f"{axis} {{{axis}}}" for axis in ("tp", "pp", "dp"))
        yield (
            f"  this run is {sizes.format(**new)}, the checkpoint {sizes.format(**then)}: convert it with "
            f"python -m hangdoctor.train.checkpoint.universal --input {saved.folder}, then --checkpoint.universal true"
        )
    for section, name in _SHARDS:
        value = now["config"][section][name]
        old = saved.meta["config"][section].get(name, _BEFORE.get(name))
        if old != value:
            yield f"  --{section}.{name} is {value}, the checkpoint has {old}"


def _schedule(saved: Saved, now: dict[str, Any]) -> Iterator[str]:
    for name, old in saved.meta["learning_rate"].items():
        value = now["learning_rate"][name]
        if value != old:
            yield f"  learning rate: {name} is {value}, the checkpoint has {old} (--checkpoint.override true uses the new one)"


def _chosen(saved: Saved, now: dict[str, Any]) -> Iterator[str]:
    for section, name in _CHOSEN:
        value = now["config"][section][name]
        old = saved.meta["config"].get(section, {}).get(name, _BEFORE.get(name))
        if old != value:
            yield f"  --{section}.{name} is {value}, the checkpoint has {old} (--checkpoint.override true uses the new one)"
