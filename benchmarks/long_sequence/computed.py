"""Memory of a rank by length of the sequence, by the planner's arithmetic: nothing is run."""

from __future__ import annotations

import copy

from hangdoctor.train.config import Config
from hangdoctor.train.planning.layouts import fullest
from hangdoctor.train.planning.memory import GIB, width
from hangdoctor.train.planning.stages import stages

# What the ranks of a tensor parallel group do with the sequence.
MODES = {
    "none": [],
    "sp": ["--parallel.sequence_parallel", "true"],
    "ulysses": ["--parallel.ulysses", "true"],
}
RECOMPUTE = ("none", "full")
_LONGEST = 2**26  # tokens: beyond any GPU


def rank_bytes(config: Config, mode: str, length: int, recompute: str) -> int:
    """Bytes of one rank of the tensor parallel group, in one stage, at micro-batch 1.

    Ulysses leaves the weights whole and gives each rank its part of the sequence; in attention it
    has its part of the heads and the whole sequence, as many numbers.
    """
    own = copy.deepcopy(config)
    own.train.micro_batch, own.model.seq_length = 1, length
    own.parallel.sequence_parallel = mode == "sp"
    if mode == "ulysses":
        own = share_of_ulysses(own)
    sizes = (own.parallel.tp, 1, 1)
    memory, _ = fullest(own, stages(own.model.layers, 1), sizes, recompute)
    if mode != "ulysses":
        return memory.total
    kept = 1 if recompute == "full" else own.model.layers
    return memory.total + kept * exchanged_bytes(own)


def exchanged_bytes(share: Config) -> int:
    """What a layer keeps more under Ulysses: attention's output, before and after the exchange."""
    m = share.model
    return share.train.micro_batch * m.seq_length * m.hidden_size * width(share)


def share_of_ulysses(config: Config) -> Config:
    """What one of Ulysses' ranks has, as a training of one rank: whole weights, but for the padding
    of the vocabulary, and a part of the sequence.
    """
    own = copy.deepcopy(config)
    tp, own.parallel.tp = own.parallel.tp, 1
    own.model.vocab_multiple *= tp
    own.model.seq_length //= tp
    return own


def longest(config: Config, mode: str, recompute: str, room: float) -> int:
    """Most tokens of a sequence that fit into `room` GiB, a multiple of 1024; 0 where none do."""

    def fits(thousands: int) -> bool:
        return rank_bytes(config, mode, 1024 * thousands, recompute) <= room * GIB

    low, high = 0, _LONGEST // 1024
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return 1024 * low
