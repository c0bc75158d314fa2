"""What every layer of the model needs to be built."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch

from ..config import Config
from ..kernels.registry import Kernels
from ..random_state import RandomState
from ..tensor_parallel.layers import Start
from ..topology import TensorGroup
from .position import Rotary

LARGE_LOGITS = 2**30  # bytes: from here on a product more costs less than the memory


@dataclass(frozen=True)
class ModelContext:
    """`weights`: the ranks that share a matrix; `sequence`: those that share a sequence (Ulysses
    keeps weights whole).
    """

    config: Config
    tensor: TensorGroup
    kernels: Kernels
    random: RandomState
    vocab: tuple[int, int]  # tokens that exist, rows of the embedding
    end: int = -1  # the token that ends a document

    @property
    def weights(self) -> TensorGroup:
        """The group over which weights are split: of one rank under Ulysses, which splits
        sequences.
        """
        return TensorGroup() if self.config.parallel.ulysses else self.tensor

    @property
    def ulysses(self) -> TensorGroup:
        """The group that exchanges heads for sequence parts; of one rank without Ulysses."""
        return self.tensor if self.config.parallel.ulysses else TensorGroup()

    @property
    def needs_documents(self) -> bool:
        """Whether the input layer must know where documents begin."""
        data = self.config.data
        return data.reset_attention_mask or data.reset_position_ids

    @property
    def layers_need_documents(self) -> bool:
        """Whether the transformer layers must know it too."""
        data, position = self.config.data, self.config.model.position
        return data.reset_attention_mask or (data.reset_position_ids and position == "rope")

    @property
    def residual_type(self) -> torch.dtype | None:
        """What the residual stream is kept in; None: as the weights."""
        return torch.float32 if self.config.model.fp32_residual else None

    @property
    def chunks_loss(self) -> bool:
        """Whether output projection and cross entropy are one, some tokens at a time."""
        c, way = self.config, self.config.model.loss
        if way != "auto":
            return way == "chunked"
        tokens = c.train.micro_batch * c.model.seq_length // self.ulysses.size
        width = 4 if c.train.precision == "fp32" else 2
        return tokens * self.vocab[1] // self.weights.size * width > LARGE_LOGITS

    @property
    def split_sequence(self) -> bool:
        """Whether activations between layers are split along the sequence."""
        return self.config.split_sequence

    @property
    def gather_for_weights(self) -> bool:
        """Megatron's sequence parallelism gathers the sequence before each column parallel product."""
        return self.split_sequence and not self.config.parallel.ulysses

    @property
    def bias_in_product(self) -> bool:
        """On one rank torch adds the bias of a row parallel layer within its product: a pass over
        memory less.

        In fp32 only: in half precision it would round once less than on several ranks, and tp would
        change the losses.
        """
        plain = (
            self.kernels.used["bias_dropout_add"] == "torch"
            and self.config.train.precision == "fp32"
        )
        return plain and self.weights.size == 1

    def start(self, name: str, std: float | None = None) -> Start:
        """How the weight `name` begins; by `--model.init_std` where nothing else is said."""
        m = self.config.model
        return Start(self.config.train.seed, name, m.init_std if std is None else std)

    @cached_property
    def rotary(self) -> Rotary:
        """The tables that all layers share."""
        m = self.config.model
        return Rotary(m.hidden_size // m.heads, m.rotary_base)

    @property
    def output_std(self) -> float:
        """Standard deviation of the projections that end a residual branch (GPT-2: 1/sqrt(2
        layers)).
        """
        m = self.config.model
        return m.init_std / math.sqrt(2 * m.layers) if m.scaled_init else m.init_std
