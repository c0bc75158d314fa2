"""What changes with the samples seen: learning rate and batch size. Pure functions of a count."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .config import OptimizerConfig, TrainConfig
from .options import ConfigError, is_number


@dataclass(frozen=True)
class LearningRate:
    """Linear warm-up, then decay, both by samples; or both by tokens, where those are given."""

    lr: float
    min_lr: float
    warmup_samples: int
    decay_samples: int
    style: str
    warmup_tokens: int = 0
    decay_tokens: int = 0

    def at(self, samples: int, tokens: int = 0) -> float:
        """Learning rate of the step that starts after `samples` samples, or `tokens` tokens, were
        trained on.
        """
        if self.warmup_tokens or self.decay_tokens:
            return self._after(tokens, self.warmup_tokens, self.decay_tokens)
        return self._after(samples, self.warmup_samples, self.decay_samples)

    def _after(self, count: int, warmup: int, decay: int) -> float:
        if warmup and count < warmup:
            return self.lr * count / warmup
        if self.style == "constant":
            return self.lr
        span = decay - warmup
        done = 1.0 if span <= 0 else min(1.0, (count - warmup) / span)
        shape = 1.0 - done if self.style == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
        return self.min_lr + shape * (self.lr - self.min_lr)


@dataclass(frozen=True)
class BatchSize:
    """Global batch size: from `start` in steps of `increment`, evenly over `ramp_samples`, then
    `final`.
    """

    final: int
    start: int = 0
    increment: int = 0
    ramp_samples: int = 0

    def at(self, samples: int) -> int:
        """Batch size after so many samples; Megatron's `--rampup-batch-size`."""
        if not self.increment or samples >= self.ramp_samples:
            return self.final
        steps = (self.final - self.start) // self.increment
        return (
            self.start + min(steps, samples * steps // max(1, self.ramp_samples)) * self.increment
        )

    def sizes(self) -> list[int]:
        """Every size it takes, in order."""
        if not self.increment:
            return [self.final]
        return list(range(self.start, self.final + 1, self.increment))

    def samples_after(self, iterations: int) -> int:
        """Samples that the first `iterations` iterations consume."""
        samples = 0
        for i in range(iterations):
            if samples >= self.ramp_samples:
                return samples + (iterations - i) * self.final
            samples += self.at(samples)
        return samples


def batch_size(train: TrainConfig) -> BatchSize:
    """The ramp-up of a configuration.

    Raises:
        ConfigError: `--train.rampup` is not three whole numbers that lead to the global batch.
    """
    if not train.rampup:
        return BatchSize(train.global_batch)
    words = train.rampup.replace("_", "").split()
    if len(words) != 3 or not all(map(is_number, words)):
        raise ConfigError(
            f"--train.rampup takes 'START INCREMENT SAMPLES', three whole numbers, got '{train.rampup}'"
        )
    start, increment, samples = map(int, words)
    distance = train.global_batch - start
    if start < 1 or increment < 1 or distance < 0 or distance % increment:
        raise ConfigError(
            f"--train.rampup '{train.rampup}': from {start} to --train.global_batch {train.global_batch} in steps of "
            f"{increment} does not come out: ({train.global_batch} - {start}) % {increment} = "
            f"{distance % increment if increment else '?'}"
        )
    return BatchSize(train.global_batch, start, increment, samples)


def learning_rate(
    optimizer: OptimizerConfig, total_samples: int, total_tokens: int = 0
) -> LearningRate:
    """The schedule of a configuration; it decays over the whole training where nothing else is
    said.
    """
    o = optimizer
    by_tokens = o.warmup_tokens or o.decay_tokens
    return LearningRate(
        o.lr,
        o.min_lr,
        o.warmup_samples,
        o.decay_samples or total_samples,
        style=o.decay_style,
        warmup_tokens=o.warmup_tokens,
        decay_tokens=(o.decay_tokens or total_tokens) if by_tokens else 0,
    )
