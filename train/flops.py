"""Floating point operations of a step, by the formula of Megatron-DeepSpeed, and model FLOPs
utilization.

Narayanan et al. 2021 (arXiv:2104.04473), equation 3: 96 B s l h^2 (1 + s/6h + V/16lh) with
recomputation of the activations, for an MLP of width 4h; its parts are written out here. The output
projection lies outside of the layers and is not recomputed: without recomputation the formula is
72 B s l h^2 (1 + s/6h + V/12lh).
"""

from __future__ import annotations

from .config import ModelConfig


def step_flops(
    model: ModelConfig, vocab: int, samples: int, *, ffn: int, recompute: bool, length: int = 0
) -> float:
    """FLOPs of forward and backward (and, with `recompute`, of the second forward) over `samples`
    samples of `length` tokens, 0: of the full sequence; `ffn` is the width of the MLP.

    A product of a vector with an m x n matrix is 2mn operations; the backward pass is two forwards.
    """
    h, s = model.hidden_size, length or model.seq_length
    projections = 8.0 * h * h  # query, key, value and output
    attention = 4.0 * s * h  # scores, and the sum of values; whole, as if nothing were masked
    mlp = 2.0 * h * ffn * (3 if model.activation == "swiglu" else 2)
    layers = model.layers * (projections + attention + mlp)
    logits = 2.0 * h * vocab
    passes = 4 if recompute else 3
    return samples * s * (passes * layers + 3 * logits)


def tflops(flops: float, seconds: float, devices: int) -> float:
    """TFLOP/s of one device."""
    return flops / seconds / devices / 1e12


def utilization(model_flops: float, seconds: float, devices: int, peak_tflops: float) -> float:
    """MFU (Chowdhery et al. 2022): FLOPs of the model, recomputation not counted, over what the
    devices could do.
    """
    return tflops(model_flops, seconds, devices) / peak_tflops


def parameter_count(model: ModelConfig, ffn: int, vocab: int) -> int:
    """Parameters of the whole model, tied weights once, without padding rows if `vocab` has none."""
    h = model.hidden_size
    norm = 2 * h if model.normalization == "layernorm" else h
    up = 2 * ffn if model.activation == "swiglu" else ffn
    biases = 4 * h + up + h if model.linear_bias else 0
    norms = norm * (1 if model.parallel_block else 2)
    block = 4 * h * h + h * up + ffn * h + biases + norms
    ends = vocab * h * (1 if model.tie_embeddings else 2) + norm
    positions = model.seq_length * h if model.position == "learned" else 0
    return model.layers * block + ends + positions + (2 * h if model.embedding_norm else 0)


def padded_vocab(size: int, multiple: int, tp: int) -> int:
    """`size` rounded up to a multiple of `multiple` x `tp`, so that every rank's slice suits the
    hardware.
    """
    step = multiple * tp
    return (size + step - 1) // step * step
