"""Floating point operations of a step, by the formula of Megatron-DeepSpeed, and model FLOPs
utilization.

Narayanan et al. 2021 (arXiv:2104.04473), equation 3: 96 B s l h^2 (1 + s/6h + V/16lh) with
recomputation of the activations, 72 B s l h^2 (...) with the forward counted once;
Megatron-DeepSpeed writes them as 24 c B s l h^2 (1 + s/6h + V/16lh), c = 4 or 3.
"""

from __future__ import annotations

from .config import ModelConfig


def step_flops(model: ModelConfig, vocab: int, samples: int, recompute: bool) -> float:
    """FLOPs of forward and backward (and, with `recompute`, of the second forward) over `samples`
    samples.
    """
    h, layers, s = model.hidden_size, model.layers, model.seq_length
    passes = 4 if recompute else 3
    return (
        24.0
        * passes
        * samples
        * s
        * layers
        * h
        * h
        * (1.0 + s / (6.0 * h) + vocab / (16.0 * layers * h))
    )


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
    block = 4 * h * h + 4 * h + 2 * h * ffn + ffn + h + norm * (1 if model.parallel_block else 2)
    ends = vocab * h * (1 if model.tie_embeddings else 2) + norm
    positions = model.seq_length * h if model.position == "learned" else 0
    return model.layers * block + ends + positions + (2 * h if model.embedding_norm else 0)
