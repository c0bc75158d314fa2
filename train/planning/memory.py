"""Bytes of a rank, by part: what DeepSpeed's engine holds, and what the trainer's layers keep.

Pure arithmetic over the configuration; a test holds it against the bytes of a real engine.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from ..config import Config
from ..flops import padded_vocab
from .stages import Stage

GIB = 2**30
_LARGE_LOGITS = 2**30  # as in model/context.py: from here on the loss goes by pieces
_PIECE = 2**28  # as in kernels/linear_cross_entropy.py: bytes of logits at a time
_ALIGNMENT = 2  # DeepSpeed pads its flat buffers to this x dp elements


@dataclass(frozen=True)
class Memory:
    """Bytes of one rank. The first three are what the engine allocates; the others are estimates.

    `passing`: what exists for a moment only, the largest of it.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    logits: int
    passing: int

    @property
    def total(self) -> int:
        """All parts together."""
        return sum(getattr(self, field.name) for field in fields(self))


def width(config: Config) -> int:
    """Bytes of a weight and of an activation."""
    return 4 if config.train.precision == "fp32" else 2


def counts(config: Config, stage: Stage, tp: int) -> tuple[int, int]:
    """Weights of a rank: (those of matrices, those of vectors), two groups of the optimizer."""
    m, h, ffn = config.model, config.model.hidden_size, config.ffn_hidden_size
    norm = 2 * h if m.normalization == "layernorm" else h
    up = (2 if m.activation == "swiglu" else 1) * ffn // tp
    ends = padded_vocab(m.vocab_size, m.vocab_multiple, tp) // tp * h
    matrices = stage.layers * (4 * h * h // tp + h * up + ffn // tp * h)
    biases = 3 * h // tp + h + up + h if m.linear_bias else 0
    vectors = stage.layers * (biases + norm * (1 if m.parallel_block else 2))
    is_shared = m.tie_embeddings and stage.embedding and stage.output
    matrices += ends * (stage.embedding + stage.output - is_shared)
    if stage.positions and m.position == "learned":
        matrices += m.seq_length * h
    vectors += norm if stage.norm else 0
    vectors += 2 * h if stage.positions and m.embedding_norm else 0
    return matrices, vectors


def engine_bytes(config: Config, stage: Stage, tp: int, dp: int) -> tuple[int, int, int]:
    """(weights, gradients, optimizer) of a rank.

    bf16 adds its gradients up in fp32. The optimizer has master weights and two moments in fp32,
    with ZeRO-1 those of its share alone; fp32 without ZeRO needs no master. Moments may have 8 bits.
    """
    groups = counts(config, stage, tp)
    if config.parallel.zero_stage == 0:
        both = sum(groups)
        has_master = config.train.precision != "fp32"
        master = both * 4 if has_master else 0
        return both * width(config), both * width(config), master + moment_bytes(config, both)
    step = _ALIGNMENT * dp
    padded = [-(-group // step) * step for group in groups]
    flat, share = sum(padded), sum(4 * group // dp for group in padded)
    share += sum(moment_bytes(config, group // dp) for group in padded)
    is_bf16 = config.train.precision == "bf16"
    return flat * width(config), flat * (4 if is_bf16 else width(config)), share


def moment_bytes(config: Config, elements: int) -> int:
    """Both of Adam's moments of one flat tensor: 8 bits each and a scale for every 256 of them where
    bitsandbytes has them so, 32 bits in its tensors below 4096 elements.
    """
    if config.optimizer.kind != "adam8bit" or elements < 4096:
        return 8 * elements
    return 2 * elements + 2 * 4 * -(-elements // 256)


def layer_bytes(config: Config, tp: int, micro: int, recompute: str) -> int:
    """What one transformer layer keeps for the backward pass of one micro-batch.

    `recompute`: none, attention (of scores and probabilities alone) or full (the layer).
    """
    m, h, wide = config.model, config.model.hidden_size, width(config)
    tokens = micro * m.seq_length
    between = tokens * h * wide // (tp if config.parallel.sequence_parallel else 1)
    if recompute == "full":
        return between
    # The two inputs of products are whole on every rank, with a split sequence too: gathered.
    whole = (2 if not m.parallel_block else 1) * tokens * h * wide
    residuals = (2 if not m.parallel_block else 1) * between
    inner = (4 if m.activation == "swiglu" else 2) * config.ffn_hidden_size
    split = tokens * (4 * h + inner) * wide // tp  # query, key, value, output; MLP
    norms = residuals // h * 2  # mean and deviation of each token
    return whole + residuals + split + norms + attention_bytes(config, tp, micro, recompute)


def attention_bytes(config: Config, tp: int, micro: int, recompute: str) -> int:
    """What attention keeps inside: a number a token and head, or, step by step, all scores."""
    m, wide = config.model, width(config)
    if recompute == "attention":
        return 0
    tokens, heads = micro * m.seq_length, m.heads // tp
    if not is_core(config):
        columns = alibi_columns(config)
        beside = 4 * tokens * heads * columns * wide  # query, key, value, output
        if columns:  # and the output again, without them
            beside += tokens * m.hidden_size // tp * wide
        return tokens * heads * 4 + beside
    scores = tokens * heads * m.seq_length
    rounded = wide if wide < 4 else 0  # the probabilities, where they are not fp32 already
    scaled = 2 * tokens * m.hidden_size // tp * wide  # query and key
    return scores * (4 + rounded) + scaled + m.seq_length**2


def alibi_columns(config: Config) -> int:
    """Columns that ALiBi adds to a head, as model/position.py does: one in fp32, else three for each
    digit of the last position; to a multiple of 8.
    """
    m = config.model
    if m.position != "alibi":
        return 0
    digits, reach = 0, 1
    while reach < m.seq_length:
        digits, reach = digits + 1, reach * 256
    columns = 1 if width(config) == 4 else 3 * digits
    return columns + -(m.hidden_size // m.heads + columns) % 8


def is_core(config: Config) -> bool:
    """Whether attention goes step by step and has a matrix of all scores."""
    return config.model.attention == "core"


def end_bytes(config: Config, stage: Stage, tp: int, micro: int) -> tuple[int, int]:
    """(activations, logits) that first and last stage keep of a micro-batch beside their layers."""
    m, h, wide = config.model, config.model.hidden_size, width(config)
    tokens, is_split = micro * m.seq_length, config.parallel.sequence_parallel
    kept = logits = 0
    if stage.embedding:
        kept += tokens * (8 if tp == 1 else 9)  # token ids, and which are another rank's
        if is_split:  # the first layer's input is a view of the whole sequence
            kept += tokens * h * wide * (tp - 1) // tp
    if stage.norm:
        share = tokens // tp if is_split else tokens
        kept += share * (h + 2) * wide + tokens * h * wide
    if stage.output:
        logits = logit_bytes(config, tp, micro) + tokens * 16
    return kept, logits


def logit_bytes(config: Config, tp: int, micro: int) -> int:
    """Logits that a rank keeps: none where the loss goes by pieces."""
    m = config.model
    own = padded_vocab(m.vocab_size, m.vocab_multiple, tp) // tp
    whole = micro * m.seq_length * own * width(config)
    is_chunked = m.loss == "chunked" or (m.loss == "auto" and whole > _LARGE_LOGITS)
    return 0 if is_chunked else whole


def in_flight(stage: int, pp: int, micro_batches: int) -> int:
    """Micro-batches whose activations a stage has at a time."""
    return min(pp - stage, micro_batches)


def passing_bytes(config: Config, stage: Stage, tp: int, micro: int, recompute: str) -> int:
    """The largest of what is there for a moment: a layer computed again, or the loss in fp32; and
    the largest weight's gradient before it is added up.
    """
    m, h = config.model, config.model.hidden_size
    again = 0
    if recompute == "full":
        again = layer_bytes(config, tp, micro, "none")
    elif recompute == "attention":
        again = attention_bytes(config, tp, micro, "none")
    loss = 0
    if stage.output:
        kept = logit_bytes(config, tp, micro)
        loss = kept // width(config) * 8 if kept else 3 * _PIECE
    vocabulary = padded_vocab(m.vocab_size, m.vocab_multiple, tp) // tp
    rows = vocabulary if stage.embedding or stage.output else 0
    largest = max(rows, config.ffn_hidden_size // tp) * h * width(config)
    return max(again, loss) + largest


def rank_memory(
    config: Config,
    stages: tuple[Stage, ...],
    number: int,
    sizes: tuple[int, int, int],
    recompute: str,
) -> Memory:
    """Memory of a rank of stage `number`; `sizes`: (tp, dp, micro-batches an iteration)."""
    tp, dp, micro_batches = sizes
    micro, stage = config.train.micro_batch, stages[number]
    weights, gradients, optimizer = engine_bytes(config, stage, tp, dp)
    ends, logits = end_bytes(config, stage, tp, micro)
    layers = stage.layers * layer_bytes(config, tp, micro, recompute)
    flying = in_flight(number, len(stages), micro_batches)
    passing = passing_bytes(config, stage, tp, micro, recompute)
    return Memory(
        weights=weights,
        gradients=gradients,
        optimizer=optimizer,
        activations=flying * (layers + ends),
        logits=flying * logits,
        passing=passing,
    )
