"""Models of Hugging Face's folders to this trainer's layers, and back."""

from __future__ import annotations

import json
from collections.abc import Container
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ..config import Config
from ..model.whole import WholeModel
from ..options import ConfigError, assign
from ..topology import TensorGroup
from . import gpt2, llama
from .tensors import Tensors, read_config, read_tensors, write_safetensors

_FAMILIES: dict[str, ModuleType] = {"gpt2": gpt2, "llama": llama}


def family_of(folder: Path) -> tuple[ModuleType, dict[str, Any]]:
    """Which of the known shapes a folder's model has, and its config.json.

    Raises:
        ConfigError: another one.
    """
    there = read_config(folder)
    kind = there.get("model_type", "none")
    if kind not in _FAMILIES:
        raise ConfigError(f"{folder}: model_type {kind}; known are {', '.join(_FAMILIES)}")
    return _FAMILIES[kind], there


def options_of(folder: Path) -> dict[str, Any]:
    """`model` options that the folder's model has.

    Raises:
        ConfigError: something that this trainer's model does not have.
    """
    family, there = family_of(folder)
    try:
        options: dict[str, Any] = family.options(there)
    except KeyError as error:
        raise ConfigError(f"{folder}/config.json says no {error}") from error
    except ConfigError as error:
        raise ConfigError(f"{folder}/config.json: {error}") from error
    config = Config()
    for name, value in options.items():
        assign(config.sections(), f"model.{name}", value, f"{folder}/config.json")
    return options


def read_model(folder: Path, config: Config, wanted: Container[int] | None = None) -> Tensors:
    """Whole weights by this trainer's names: "LAYER.parameter", layers as the pipeline counts them.
    Of the transformer layers only those `wanted`: the others stay on disk.

    Raises:
        ConfigError: the configuration is of another model, or a tensor is missing.
    """
    m = config.model
    shorter = m.seq_length <= options_of(folder)["seq_length"]
    for name, value in options_of(folder).items():
        ours = config.ffn_hidden_size if name == "ffn_hidden_size" else getattr(m, name)
        if ours != value and not (name == "seq_length" and shorter):
            raise ConfigError(f"--model.weights {folder}: its model.{name} is {value}, here {ours}")
    family, _ = family_of(folder)
    every = range(m.layers + 2)
    try:
        made: Tensors = family.taken(
            read_tensors(folder), config, every if wanted is None else wanted
        )
    except KeyError as error:
        raise ConfigError(f"{folder}: no tensor {error}") from error
    if "1.position" in made:
        made["1.position"] = made["1.position"][: m.seq_length]
    return made


def own_part(whole: torch.Tensor, parameter: torch.Tensor, tp: TensorGroup) -> torch.Tensor:
    """What of a whole weight belongs into `parameter` of this rank: its slice; rows of a vocabulary
    are cut or padded as the parameter is.
    """
    dim = getattr(parameter, "partition_dim", None)
    if dim is None or tp.size == 1:
        return whole
    share = parameter.shape[dim]
    begin = min(share * tp.rank, whole.shape[dim])
    return whole.narrow(dim, begin, min(share, whole.shape[dim] - begin))


def fill(parameter: torch.nn.Parameter, whole: torch.Tensor, tp: TensorGroup, name: str) -> None:
    """Put this rank's part of a whole weight in its place; rows of padding stay as they are.

    Raises:
        ConfigError: another shape.
    """
    part = own_part(whole, parameter, tp)
    is_vocabulary = name.count(".") == 1 and name.endswith(".weight") and parameter.dim() == 2
    part = part[: len(parameter)] if is_vocabulary else part
    fits = part.shape[1:] == parameter.shape[1:] if is_vocabulary else part.shape == parameter.shape
    if not fits:
        raise ConfigError(
            f"--model.weights: {name} is {list(part.shape)}, here {list(parameter.shape)}"
        )
    parameter.data[: len(part)] = part.to(parameter.dtype)


def fill_layers(
    layers: dict[str, torch.nn.Parameter], whole: Tensors, tp: TensorGroup, vocab: int
) -> None:
    """Put whole weights into the parameters that a rank has, by name.

    Raises:
        ConfigError: a parameter has no weight, or there are too few rows for the vocabulary.
    """
    if len(whole["0.weight"]) < vocab:
        raise ConfigError(
            f"--model.weights: its vocabulary has {len(whole['0.weight'])} tokens, --data.tokenizer {vocab}"
        )
    for name, parameter in layers.items():
        if name not in whole:
            raise ConfigError(f"--model.weights: nothing for {name}")
        fill(parameter, whole[name], tp, name)


def write_model(model: WholeModel, folder: Path) -> None:
    """Write config.json and model.safetensors.

    Raises:
        ConfigError: neither GPT-2 nor Llama has all that the model has.
    """
    context = model.context
    config, vocab = context.config, context.vocab[0]
    why = {name: family.unfit(config) for name, family in _FAMILIES.items()}
    fitting = [name for name, missing in why.items() if not missing]
    if not fitting:
        reasons = "; ".join(f"{name} has no {missing}" for name, missing in why.items())
        raise ConfigError(f"no shape of Hugging Face's that is known here fits: {reasons}")
    family = _FAMILIES[fitting[0]]
    ours = {name: p.detach() for name, p in model.stack.named_parameters()}
    ours = {n: t[:vocab] if _is_vocabulary(n, t) else t for n, t in ours.items()}
    folder.mkdir(parents=True, exist_ok=True)
    described = {**family.described(config, vocab, context.end), "dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(described, indent=2) + "\n", "utf-8")
    tensors = {name: tensor.float() for name, tensor in family.given(ours, config).items()}
    write_safetensors(folder / "model.safetensors", tensors)


def _is_vocabulary(name: str, tensor: torch.Tensor) -> bool:
    return name.count(".") == 1 and name.endswith(".weight") and tensor.dim() == 2
