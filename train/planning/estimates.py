"""Time: FLOPs of each stage at a given rate of a GPU, bubble, days. No communication is counted."""

from __future__ import annotations

from dataclasses import replace

from ..config import Config
from ..flops import step_flops
from .stages import Stage

DAY = 86400.0


def stage_flops(config: Config, stage: Stage, recompute: str) -> float:
    """FLOPs of a stage over one micro-batch, forward and backward."""
    m, micro, ffn = config.model, config.train.micro_batch, config.ffn_hidden_size
    own, ends = replace(m, layers=stage.layers), replace(m, layers=0)
    again = recompute == "full"
    total = step_flops(own, 0, micro, ffn=ffn, recompute=again)
    if recompute == "attention":
        total += 4.0 * micro * m.seq_length**2 * m.hidden_size * stage.layers
    if stage.output:
        total += step_flops(ends, m.vocab_size, micro, ffn=ffn, recompute=False)
    return total


def iteration_seconds(work: list[float], micro_batches: int, rate: float) -> float:
    """Seconds of an iteration: every stage once, then the slowest for each further micro-batch.

    `work`: FLOPs a micro-batch of each stage; `rate`: FLOP/s of all GPUs of a stage together.
    """
    return (sum(work) + (micro_batches - 1) * max(work)) / rate


def bubble(pp: int, micro_batches: int) -> float:
    """Share of an iteration in which a stage of an even pipeline waits."""
    return (pp - 1) / (micro_batches + pp - 1)


def balance(work: list[float]) -> float:
    """Mean work of a stage over that of the slowest: 1 is even."""
    return sum(work) / len(work) / max(work)


def training_days(
    parameters: float, tokens: float, gpus: int, tflops: float, passes: int = 8
) -> float:
    """Days by passes x parameters x tokens: 8 with recomputation of all layers, 6 without."""
    return passes * parameters * tokens / (gpus * tflops * 1e12) / DAY


def gpu_hours(parameters: float, tokens: float, tflops: float, passes: int = 8) -> float:
    """GPU hours of the same, however many GPUs there are."""
    return 24 * training_days(parameters, tokens, 1, tflops, passes)
