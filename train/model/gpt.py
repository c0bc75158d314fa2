"""GPT as pipeline layers: word embedding, input, transformer layers, final norm, output.

Only the word embedding's matrix is tied between first and last stage. Positions, embedding norm and
dropout are a layer of their own that exists once: what is not on the last stage cannot go stale
there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ..tensor_parallel.layers import VocabParallelEmbedding, mark_partial
from ..tensor_parallel.mappings import (
    copy_to_tensor,
    gather_sequence,
    mean_over_ranks,
    split_sequence,
)
from ..topology import TensorGroup
from .context import ModelContext
from .documents import Stream, documents_of, joined, parts, positions_in
from .layers import Norm, TransformerLayer

TIED = "word_embedding"


class WordEmbedding(VocabParallelEmbedding):
    """tokens [b, s] -> [s, b, h]; `output` is the same matrix the other way round."""

    def __init__(self, context: ModelContext) -> None:
        c = context.config
        start = context.start("embedding.weight")
        super().__init__(context.vocab, c.model.hidden_size, context.weights, start)
        self.context = context
        if c.parallel.ulysses:
            mark_partial(self)

    def forward(self, tokens: torch.Tensor) -> Stream:
        """[batch, sequence] of token ids -> [sequence, batch, hidden], under Ulysses this rank's
        part; with the documents where they are needed.
        """
        documents = documents_of(tokens, self.context.end) if self.context.needs_documents else None
        if self.context.config.parallel.ulysses:
            tokens = split_sequence(tokens.t(), self.context.tensor).t()
        return joined(super().forward(tokens).transpose(0, 1).contiguous(), documents)


# What the last layer gives the loss: logits, or what makes them, hidden vectors and weight.
Output = torch.Tensor | tuple[torch.Tensor, torch.Tensor]


class _Together(torch.autograd.Function):
    """Both as they are, behind one node of the graph. DeepSpeed clears gradients in a hook on what
    the last layer returns: without it the weight's own gradient would come first, and be cleared.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return hidden.detach(), weight.detach()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return grads


def _whole_sequence(hidden: torch.Tensor, context: ModelContext) -> torch.Tensor:
    tp = context.weights
    return gather_sequence(hidden, tp) if context.gather_for_weights else copy_to_tensor(hidden, tp)


def project_out(
    embedding: VocabParallelEmbedding, hidden: torch.Tensor, context: ModelContext
) -> torch.Tensor:
    """[s, b, h] or its part of the sequence -> logits [s, b, V / tp]."""
    return embedding.logits(_whole_sequence(hidden, context))


def _for_the_loss(
    embedding: VocabParallelEmbedding, hidden: torch.Tensor, context: ModelContext
) -> Output:
    if not context.chunks_loss:
        return project_out(embedding, hidden, context)
    return _Together.apply(_whole_sequence(hidden, context), embedding.weight)


def tied_output(embedding: WordEmbedding, hidden: torch.Tensor) -> Output:
    """By the word embedding of the first stage, which the last one shares."""
    return _for_the_loss(embedding, hidden, embedding.context)


class InputLayer(nn.Module):
    """Adds positions, normalizes, drops, and cuts the sequence where it is split: [s, b, h] -> [s
    (/ tp), b, h].
    """

    def __init__(self, context: ModelContext) -> None:
        super().__init__()
        self.context, m = context, context.config.model
        self.position = None
        if m.position == "learned":
            start = context.start("position.weight")
            self.position = nn.Parameter(start.whole((m.seq_length, m.hidden_size)))
        self.norm = Norm(context, "layernorm") if m.embedding_norm else None
        if context.config.parallel.ulysses:
            for module in self.modules():
                mark_partial(module)

    def _positions(self, length: int, documents: torch.Tensor | None) -> torch.Tensor:
        """[length, batch or 1, hidden]: the embedding of each position, of this rank's part."""
        group = self.context.ulysses
        own = slice(length * group.rank, length * (group.rank + 1))
        if documents is None or not self.context.config.data.reset_position_ids:
            return self.position[own].unsqueeze(1)
        return self.position[positions_in(documents)[:, own].t()]

    def forward(self, stream: Stream) -> Stream:
        """[sequence, batch, hidden] -> the same, with positions and dropout; its part where the
        sequence is split.
        """
        x, documents = parts(stream)
        if self.position is not None:
            x = x + self._positions(x.shape[0], documents)
        if self.norm is not None:
            x = self.norm(x)
        x = self._drop(x).to(self.context.residual_type or x.dtype)
        if self.context.gather_for_weights:
            x = split_sequence(x, self.context.tensor)
        return joined(x, documents if self.context.layers_need_documents else None)

    def _drop(self, x: torch.Tensor) -> torch.Tensor:
        probability = self.context.config.model.hidden_dropout
        if not self.training or probability == 0:
            return x
        if self.context.config.parallel.ulysses:
            with self.context.random.tensor_parallel():
                return F.dropout(x, probability, True)
        return F.dropout(x, probability, True)


class FinalNorm(Norm):
    """The norm behind the last layer; of a part of the sequence where that is split."""

    def __init__(self, context: ModelContext) -> None:
        super().__init__(context, partial=context.split_sequence)

    def forward(self, stream: Stream) -> torch.Tensor:
        """The last layers need no documents."""
        return super().forward(parts(stream)[0])


class OutputEmbedding(VocabParallelEmbedding):
    """The output projection where it is not tied."""

    def __init__(self, context: ModelContext) -> None:
        c = context.config
        start = context.start("output.weight")
        super().__init__(context.vocab, c.model.hidden_size, context.weights, start)
        self.context = context
        if c.parallel.ulysses:
            mark_partial(self)

    def forward(self, hidden: torch.Tensor) -> Output:
        """[sequence, batch, hidden] -> this rank's part of the logits, or what makes them."""
        return _for_the_loss(self, hidden, self.context)


class Loss:
    """Mean cross entropy of a micro-batch: logits [s, b, V / tp] or what makes them, (labels [b, s],
    mask [b, s]) -> scalar.
    """

    __name__ = "cross entropy"

    def __init__(self, context: ModelContext) -> None:
        self.context = context

    def __call__(self, output: Output, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        labels, mask = (t.t().contiguous() for t in batch)
        group: TensorGroup = self.context.ulysses
        counted = mask.sum().clamp(min=1) / group.size  # a rank's part may have none
        if group.size > 1:
            labels, mask = split_sequence(labels, group), split_sequence(mask, group)
        losses = self._losses(output, labels)
        return mean_over_ranks((losses * mask).sum() / counted, group)

    def _losses(self, output: Output, labels: torch.Tensor) -> torch.Tensor:
        kernels, tp, real = self.context.kernels, self.context.weights, self.context.vocab[0]
        if isinstance(output, torch.Tensor):
            return kernels.cross_entropy(output, labels, tp, real)
        hidden, weight = output
        each = kernels.linear_cross_entropy(
            hidden.flatten(0, -2), weight, labels.flatten(), tp, vocab_size=real
        )
        return each.view_as(labels)


def layer_specs(context: ModelContext) -> list[Any]:
    """The pipeline's layers, from tokens to logits."""
    from deepspeed.runtime.pipe.module import LayerSpec, TiedLayerSpec

    m = context.config.model
    if m.tie_embeddings:
        first = TiedLayerSpec(TIED, WordEmbedding, context, tied_weight_attr="weight")
        last = TiedLayerSpec(
            TIED, WordEmbedding, context, forward_fn=tied_output, tied_weight_attr="weight"
        )
    else:
        first, last = LayerSpec(WordEmbedding, context), LayerSpec(OutputEmbedding, context)
    blocks = [LayerSpec(TransformerLayer, context, i) for i in range(m.layers)]
    return [first, LayerSpec(InputLayer, context), *blocks, LayerSpec(FinalNorm, context), last]
