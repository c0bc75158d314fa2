"""Normalization, attention, MLP and the transformer layer.

Activations are [s, b, h], or [s / tp, b, h].
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from ..kernels import bias_dropout_add
from ..tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear, mark_partial
from ..tensor_parallel.mappings import heads_for_sequence, sequence_for_heads
from .context import ModelContext
from .documents import Stream, causal, joined, parts, positions_in, same_document
from .position import FUSES_ALIBI, alibi_bias, alibi_slopes, with_alibi


class Norm(nn.Module):
    """LayerNorm or RMSNorm, whichever the configuration says, through the chosen kernel."""

    def __init__(self, context: ModelContext, kind: str = "", partial: bool = False) -> None:
        super().__init__()
        m = context.config.model
        self.eps, self.kernels = m.norm_eps, context.kernels
        self.weight = nn.Parameter(torch.ones(m.hidden_size))
        centred = (kind or m.normalization) == "layernorm"
        self.bias = nn.Parameter(torch.zeros(m.hidden_size)) if centred else None
        if partial:
            mark_partial(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalize the last dimension; shape of `x`, dtype of the weight."""
        weight, bias = self.weight, self.bias
        if x.dtype != weight.dtype:  # an fp32 residual stream: rounded after the normalization
            weight, bias = weight.to(x.dtype), None if bias is None else bias.to(x.dtype)
        if bias is None:
            return self.kernels.rms_norm(x, weight, self.eps).to(self.weight.dtype)
        return self.kernels.layer_norm(x, weight, bias, self.eps).to(self.weight.dtype)

    def behind(
        self, branch: torch.Tensor, bias: torch.Tensor | None, residual: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(residual + branch + bias, the same normalized), in one kernel."""
        if self.bias is None:
            return self.kernels.add_rms_norm(branch, residual, self.weight, self.eps, x_bias=bias)
        return self.kernels.add_layer_norm(
            branch, residual, self.weight, self.bias, self.eps, x_bias=bias
        )


class Attention(nn.Module):
    """Causal self-attention over this rank's heads.

    The output has no bias added yet, but for `bias_in_product`.
    """

    def __init__(self, context: ModelContext, name: str) -> None:
        super().__init__()
        m, tp = context.config.model, context.weights
        self.context, self.dropout = context, m.attention_dropout
        self.width = m.hidden_size // m.heads
        # Rows are ordered head by head as (q, k, v): a slice of heads is a slice of rows on any tp.
        start = context.start(f"{name}.qkv.weight")
        common = {"sequence": context.gather_for_weights, "bias": m.linear_bias}
        self.qkv = ColumnParallelLinear(m.hidden_size, 3 * m.hidden_size, tp, start=start, **common)
        start = context.start(f"{name}.out.weight", context.output_std)
        self.out = RowParallelLinear(m.hidden_size, m.hidden_size, tp, start=start, **common)
        self.rotary = context.rotary if m.position == "rope" else None
        self.slopes = self._own_slopes(alibi_slopes(m.heads)) if m.position == "alibi" else None

    def _own_slopes(self, slopes: list[float]) -> torch.Tensor:
        share = len(slopes) // self.context.tensor.size
        return torch.tensor(slopes[share * self.context.tensor.rank :][:share], dtype=torch.float32)

    def forward(self, x: torch.Tensor, documents: torch.Tensor | None = None) -> torch.Tensor:
        """Causal self-attention: [sequence, batch, hidden] -> the same shape; of `documents`
        [batch, sequence] where they are not to see each other.
        """
        qkv = self.qkv(x)
        s, b, _ = qkv.shape
        group, data = self.context.ulysses, self.context.config.data
        q, k, v = self._turned(qkv.view(s, b, -1, 3, self.width), documents)
        y = self._attend(q, k, v, documents if data.reset_attention_mask else None)
        y = sequence_for_heads(y, group)
        return self.out(y.reshape(s, b, -1), self.context.bias_in_product)

    def _turned(
        self, qkv: torch.Tensor, documents: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """[s, b, heads, 3, d] -> query, key and value, with the positions that rotary gives them;
        under Ulysses of all the sequence and this rank's heads.
        """
        group, kernels = self.context.ulysses, self.context.kernels
        if self.rotary is None:
            q, k, v = (heads_for_sequence(t, group) for t in qkv.unbind(dim=3))
            return q, k, v
        is_reset = documents is not None and self.context.config.data.reset_position_ids
        positions = positions_in(documents) if is_reset else None
        cos, sin = self.rotary.tables(qkv.shape[0] * group.size, qkv.device, positions)
        if group.size == 1:
            return kernels.rotary_qkv(qkv, cos, sin)
        q, k, v = (heads_for_sequence(t, group) for t in qkv.unbind(dim=3))
        return kernels.rotary(q, cos, sin), kernels.rotary(k, cos, sin), v

    def _attend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, documents: torch.Tensor | None
    ) -> torch.Tensor:
        way = self._core if self._needs_core else self._sdpa
        m = self.context.config.model
        if m.recompute_attention and not m.recompute and torch.is_grad_enabled() and self.training:
            return self.context.random.recompute(way, q, k, v, documents)
        return way(q, k, v, documents)

    @property
    def _needs_core(self) -> bool:
        is_half = self.context.config.train.precision != "fp32"
        if self.slopes is not None and is_half and not FUSES_ALIBI:
            return True
        return self.context.config.model.attention == "core"

    def _sdpa(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, documents: torch.Tensor | None
    ) -> torch.Tensor:
        """[s, b, heads, d] each -> [s, b, heads, d], by torch's fused attention."""
        q, k, v = (t.permute(1, 2, 0, 3) for t in (q, k, v))
        scale = self.width**-0.5
        if self.slopes is not None:
            self.slopes = self.slopes.to(q.device)
            q, k, v = with_alibi(q, k, v, self.slopes, scale)
        mask = None if documents is None else causal(same_document(documents))
        options = {"attn_mask": mask, "is_causal": mask is None, "scale": scale}
        probability = self.dropout if self.training else 0.0
        if probability > 0:
            with self.context.random.tensor_parallel():
                y = F.scaled_dot_product_attention(q, k, v, dropout_p=probability, **options)
        else:
            y = F.scaled_dot_product_attention(q, k, v, **options)
        return y[..., : self.width].permute(2, 0, 1, 3)

    def _core(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, documents: torch.Tensor | None
    ) -> torch.Tensor:
        """The same step by step; q and k are scaled before their product, so that fp16 scores do
        not overflow.
        """
        scale = self.width**-0.25
        scores = torch.einsum("qbhd,kbhd->bhqk", q * scale, k * scale)
        if self.slopes is not None:
            self.slopes = self.slopes.to(scores.device)
            scores = scores + alibi_bias(
                self.slopes, scores.shape[-1]
            )  # float32: bf16 cannot count to the last position
        if documents is not None:
            scores = scores.masked_fill(~same_document(documents), torch.finfo(scores.dtype).min)
        probabilities = self.context.kernels.softmax(scores, 1.0).to(v.dtype)
        if self.training and self.dropout > 0:
            with self.context.random.tensor_parallel():
                probabilities = F.dropout(probabilities, self.dropout, True)
        return torch.einsum("bhqk,kbhd->qbhd", probabilities, v)


class MLP(nn.Module):
    """h -> ffn -> h with GELU or SwiGLU. The output has no bias added yet, but for
    `bias_in_product`.
    """

    def __init__(self, context: ModelContext, name: str) -> None:
        super().__init__()
        c, tp = context.config, context.weights
        m, ffn = c.model, c.ffn_hidden_size
        self.kernels, self.bias_in_product = context.kernels, context.bias_in_product
        self.activation = m.activation
        common = {"sequence": context.gather_for_weights, "bias": m.linear_bias}
        start = context.start(f"{name}.up.weight")
        # SwiGLU's rows take turns, one of the gate and one of the values: a slice has both.
        width = 2 * ffn if m.activation == "swiglu" else ffn
        self.up = ColumnParallelLinear(m.hidden_size, width, tp, start=start, **common)
        start = context.start(f"{name}.down.weight", context.output_std)
        self.down = RowParallelLinear(ffn, m.hidden_size, tp, start=start, **common)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[sequence, batch, hidden] -> the same shape, by way of the wider inner one."""
        return self.down(self._inner(x), self.bias_in_product)

    def _inner(self, x: torch.Tensor) -> torch.Tensor:
        if self.activation == "swiglu":
            gate, values = self.up(x).unflatten(-1, (-1, 2)).unbind(-1)
            return F.silu(gate) * values
        if self.activation == "gelu":  # no fused kernel has it
            return F.gelu(self.up(x))
        if self.kernels.fuses_bias and self.up.bias is not None:
            return self.kernels.bias_gelu(self.up(x, skip_bias=True), self.up.bias)
        return F.gelu(self.up(x), approximate="tanh")


class TransformerLayer(nn.Module):
    """Pre-norm block; parallel (GPT-J, PaLM): x + attention(n(x)) + mlp(n(x)), else one after the
    other.
    """

    def __init__(self, context: ModelContext, index: int) -> None:
        super().__init__()
        self.context, m = context, context.config.model
        partial = context.split_sequence
        self.norm = Norm(context, partial=partial)
        self.attention = Attention(context, f"layers.{index}.attention")
        self.mlp = MLP(context, f"layers.{index}.mlp")
        self.mlp_norm = None if m.parallel_block else Norm(context, partial=partial)
        if context.config.parallel.ulysses:
            for module in self.modules():
                mark_partial(module)
        backend = context.config.run.compile
        if backend != "off":  # all layers share what the first one compiles: weights are its inputs
            self._block = torch.compile(self._block, backend=backend, dynamic=False)

    def forward(self, stream: Stream) -> Stream:
        """One layer: [sequence, batch, hidden] -> the same; computed again in backward where that
        was asked for. Documents go through as they are.
        """
        x, documents = parts(stream)
        if self.attention.rotary is not None:
            self.attention.rotary.prepare(self.context.config.model.seq_length, x.device)
        if self.context.config.model.recompute and self.training and torch.is_grad_enabled():
            return joined(self.context.random.recompute(self._block, x, documents), documents)
        return joined(self._block(x, documents), documents)

    def _block(self, x: torch.Tensor, documents: torch.Tensor | None) -> torch.Tensor:
        normed = self.norm(x)
        attended = self.attention(normed, documents)
        if self.mlp_norm is None:
            both = self._add(attended, self.attention.out.bias, x)
            return self._add(self.mlp(normed), self.mlp.down.bias, both)
        if self._adds_in_the_norm:
            x, normed = self.mlp_norm.behind(attended, self.attention.out.bias, x)
        else:
            x = self._add(attended, self.attention.out.bias, x)
            normed = self.mlp_norm(x)
        return self._add(self.mlp(normed), self.mlp.down.bias, x)

    @property
    def _adds_in_the_norm(self) -> bool:
        """Where nothing is dropped between: torch fuses neither, and on one rank adds the bias in
        its product.
        """
        drops = self.training and self.context.config.model.hidden_dropout > 0
        return self.context.kernels.fuses_norm and not drops

    def _add(
        self, branch: torch.Tensor, bias: torch.Tensor | None, residual: torch.Tensor
    ) -> torch.Tensor:
        probability = self.context.config.model.hidden_dropout
        add = self.context.kernels.bias_dropout_add
        if self.context.bias_in_product or bias is None:
            add = self._add_dropped
        elif branch.dtype != residual.dtype:  # torch adds what differs in dtype, the kernels do not
            add = bias_dropout_add.reference
        if self.training and probability > 0 and self.context.split_sequence:
            with self.context.random.tensor_parallel():  # other ranks hold other tokens
                return add(branch, bias, residual, probability, True)
        return add(branch, bias, residual, probability, self.training)

    @staticmethod
    def _add_dropped(
        x: torch.Tensor, _: torch.Tensor | None, residual: torch.Tensor, p: float, training: bool
    ) -> torch.Tensor:
        return residual + (F.dropout(x, p, True) if training and p > 0 else x)


def attention_flavour(context: ModelContext) -> str:
    """Which attention runs, and why where it is the core one; for the log."""
    m = context.config.model
    if m.attention == "core":
        return "core (requested)"
    beside = ", ALiBi in columns of query and key" if m.position == "alibi" else ""
    return f"torch sdpa{beside}"
