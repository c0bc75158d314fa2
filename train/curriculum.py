"""The length of the sequences of each iteration: from short to full, as DeepSpeed's curriculum does
it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .config import Config
from .options import ConfigError, is_number
from .schedule import BatchSize

COMPILED_LENGTHS = 8  # torch._dynamo's recompile_limit: what comes after runs uncompiled
FORM = "'fixed_linear START FULL STEPS MULTIPLE'"


@dataclass(frozen=True)
class SequenceLength:
    """Tokens a sample: from `start` to `full` over `steps` iterations, in multiples of `multiple`;
    without steps always `full`.
    """

    full: int
    start: int = 0
    steps: int = 0
    multiple: int = 1

    def at(self, iteration: int) -> int:
        """Tokens a sample of iteration number `iteration`, counted from 1: what DeepSpeed's
        `fixed_linear` gives, to the rounding of its floats.
        """
        if iteration >= self.steps:
            return self.full
        grown = math.floor(iteration / self.steps * (self.full - self.start) + self.start)
        return grown - grown % self.multiple

    def lengths(self) -> list[int]:
        """Every length that it takes, in order."""
        found = {self.at(iteration) for iteration in range(1, self.steps + 1)}
        return sorted(found | {self.full})

    def tokens_after(self, iterations: int, batch: BatchSize) -> int:
        """Tokens that the first `iterations` iterations train on."""
        ramp = min(iterations, self.steps)
        samples = tokens = 0
        for iteration in range(1, ramp + 1):
            size = batch.at(samples)
            samples += size
            tokens += size * self.at(iteration)
        return tokens + (batch.samples_after(iterations) - samples) * self.full


def sequence_length(curriculum: str, full: int) -> SequenceLength:
    """What `--train.curriculum` asks for; `full` is `--model.seq_length`.

    Raises:
        ConfigError: it is not of its form, or its numbers do not lead to the full length.
    """
    if not curriculum:
        return SequenceLength(full)
    kind, _, rest = curriculum.strip().partition(" ")
    words = rest.replace("_", "").split()
    if kind != "fixed_linear" or len(words) != 4 or not all(map(is_number, words)):
        raise ConfigError(f"--train.curriculum takes {FORM}, got '{curriculum}'")
    start, end, steps, multiple = map(int, words)
    flag = f"--train.curriculum '{curriculum}'"
    if end != full:
        raise ConfigError(f"{flag} ends at {end}, and --model.seq_length is {full}: make them one")
    if not 1 <= start <= end or steps < 1 or multiple < 1:
        raise ConfigError(
            f"{flag}: START must be 1 to {end}, STEPS and MULTIPLE 1 or more; it takes {FORM}"
        )
    for name, value in (("START", start), ("FULL", end)):
        if value % multiple:
            raise ConfigError(
                f"{flag}: {name} {value} % MULTIPLE {multiple} = {value % multiple}, must be 0"
            )
    return SequenceLength(end, start, steps, multiple)


def curriculum_complaints(config: Config, _: object) -> Iterator[str]:
    """What does not fit the rest of the configuration; for `train.validate`."""
    p, words = config.parallel, config.train.curriculum
    try:
        sequence = sequence_length(words, config.model.seq_length)
    except ConfigError as error:
        yield str(error)
        return
    if sequence.steps and config.split_sequence and sequence.multiple % p.tp:
        yield (
            f"--train.curriculum '{words}': MULTIPLE {sequence.multiple} % --parallel.tp {p.tp} = "
            f"{sequence.multiple % p.tp}, must be 0: the tp ranks share a sequence"
        )
    if config.run.compile != "off" and len(sequence.lengths()) > COMPILED_LENGTHS:
        yield (
            f"--train.curriculum '{words}' has {len(sequence.lengths())} lengths and --compile makes "
            f"code for each, up to {COMPILED_LENGTHS}: take a larger MULTIPLE, or --compile off"
        )


def set_sequence_length(engine: Any, length: int) -> None:
    """Tell DeepSpeed's engine how long the next sequences are. Its stages agree on the shapes of
    what they exchange once, and keep the buffers: every rank drops them where the length changes.
    """
    if length != engine.sequence_length:
        engine.reset_activation_shape()
        engine.sequence_length = length


@contextmanager
def full_sequences(engine: Any, length: int) -> Iterator[None]:
    """An evaluation within a curriculum: on sequences of `length`, whatever is trained on."""
    before = engine.sequence_length
    set_sequence_length(engine, length)
    try:
        yield
    finally:
        set_sequence_length(engine, before)
