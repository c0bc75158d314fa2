"""The model in one process, without an engine: to generate text, to exchange weights, to test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..checkpoint import files
from ..config import Config
from ..flops import padded_vocab
from ..kernels.registry import choose
from ..options import ConfigError
from ..random_state import RandomState
from ..topology import TensorGroup
from .context import ModelContext
from .gpt import FinalNorm, InputLayer, OutputEmbedding, WordEmbedding, project_out
from .layers import TransformerLayer


class WholeModel(nn.Module):
    """Tokens [batch, sequence] -> logits [batch, sequence, tokens that exist].

    `stack` are the layers as the pipeline numbers them: embedding, input, blocks, norm, output.
    """

    def __init__(self, context: ModelContext) -> None:
        super().__init__()
        m = context.config.model
        self.context, self.embedding = context, WordEmbedding(context)
        blocks = [TransformerLayer(context, i) for i in range(m.layers)]
        output = self.embedding if m.tie_embeddings else OutputEmbedding(context)
        self.stack = nn.ModuleList(
            [self.embedding, InputLayer(context), *blocks, FinalNorm(context), output]
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The logits of what follows each token."""
        stream: Any = tokens
        for layer in self.stack[:-1]:
            stream = layer(stream)
        logits = project_out(self.stack[-1], stream, self.context)
        return logits.transpose(0, 1)[..., : self.context.vocab[0]]


def whole_context(config: Config, vocab: int, end: int, device: torch.device) -> ModelContext:
    """The context of a model on one rank, whatever layout the configuration has."""
    p = config.parallel
    p.tp = p.pp = p.dp = 1
    p.sequence_parallel = p.ulysses = False
    random = RandomState(config.train.seed, 0, 0, 0, device=device)
    rows = padded_vocab(vocab, config.model.vocab_multiple, 1)
    kernels = choose("auto", device)
    return ModelContext(config, TensorGroup(), kernels, random, vocab=(vocab, rows), end=end)


def load_layers(model: WholeModel, folder: Path) -> None:
    """Take the weights of a checkpoint of any layout.

    Raises:
        ConfigError: torn, or of another shape.
    """
    saved = files.inspect(folder)
    if saved.fault:
        raise ConfigError(f"{folder} is torn: {saved.fault}")
    last = len(model.stack) - 1
    for number, layer in enumerate(model.stack):
        if number == last and model.stack[-1] is model.embedding:
            continue  # tied
        paths = sorted(folder.glob(f"layer_{number:02d}-model_*-model_states.pt"))
        if not paths:
            raise ConfigError(f"{folder} has no layer {number}: its model has other layers")
        slices = [torch.load(path, map_location="cpu", weights_only=True) for path in paths]
        _fill(layer, slices, f"{folder}: layer {number}")


def _fill(layer: nn.Module, slices: list[dict[str, torch.Tensor]], where: str) -> None:
    """Put the slices of tensor parallel ranks together, along the dimension that each is cut by."""
    for name, parameter in layer.named_parameters():
        own = [s[name] for s in slices if name in s]
        is_cut = hasattr(parameter, "partition_dim") and own[0].shape != parameter.shape
        value = torch.cat(own, dim=parameter.partition_dim) if is_cut else own[0]
        if name == "weight" and value.dim() == 2:  # rows of the vocabulary: padded for another tp
            value = value[: parameter.shape[0]]
            if len(value) < len(parameter):
                value = torch.cat([value, parameter.detach()[len(value) :].to(value.dtype)])
        if value.shape != parameter.shape:
            raise ConfigError(
                f"{where}: {name} is {list(value.shape)}, this configuration has {list(parameter.shape)}"
            )
        parameter.data = value.to(parameter.dtype)
