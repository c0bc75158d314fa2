"""Every layout of a model over GPUs, with its memory, time and ramp-up; what fits comes first."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..config import Config
from ..schedule import batch_size
from . import estimates
from .memory import GIB, Memory, is_core, rank_memory
from .stages import Stage, can_split, stages


@dataclass(frozen=True)
class Machines:
    """What there is: GPUs, GPUs a node, GiB of a GPU, GiB that CUDA and NCCL take of it, and the
    TFLOP/s that a GPU reaches while it computes.
    """

    gpus: int
    node: int
    memory: float
    reserve: float
    tflops: float


@dataclass(frozen=True)
class Planned:
    """One layout with a micro-batch; `memory` is that of the fullest stage, `stage` its number."""

    tp: int
    pp: int
    dp: int
    micro_batch: int
    micro_batches: int
    recompute: str
    layers: tuple[int, ...]
    balance: float
    bubble: float
    stage: int
    memory: Memory
    fits: bool
    ramp_fault: str
    filled_from: int
    seconds: float

    @property
    def gpus(self) -> int:
        """How many it takes."""
        return self.tp * self.pp * self.dp

    @property
    def is_usable(self) -> bool:
        """Whether it fits and every batch of the ramp-up comes out."""
        return self.fits and not self.ramp_fault


def plan(config: Config, machines: Machines, micro_batches: Sequence[int]) -> list[Planned]:
    """All layouts, usable ones first, by seconds an iteration.

    Raises:
        ConfigError: the ramp-up does not lead to the global batch.
    """
    found = [
        planned(config, machines, sizes) for sizes in candidates(config, machines, micro_batches)
    ]
    return sorted(found, key=_order)


def _order(planned: Planned) -> tuple[bool, bool, float, int, int]:
    """Of equals the one that splits layers least, in the largest micro-batches."""
    seconds = float(f"{planned.seconds:.9g}")
    return not planned.is_usable, not planned.fits, seconds, planned.tp, -planned.micro_batch


def candidates(
    config: Config, machines: Machines, micro_batches: Sequence[int]
) -> Iterator[tuple[int, int, int, int]]:
    """(tp, pp, dp, micro-batch): tp within a node, stages that the trainer takes, and as many
    replicas as there is room for and the global batch divides by.
    """
    m, batch = config.model, config.train.global_batch
    for tp in [n for n in range(1, machines.node + 1) if machines.node % n == 0]:
        if m.heads % tp or config.ffn_hidden_size % tp:
            continue
        if config.parallel.sequence_parallel and (tp == 1 or m.seq_length % tp):
            continue
        for pp in range(1, machines.gpus // tp + 1):
            if not can_split(m.layers, pp) or (pp > 1 and is_refused_with_stages(config)):
                continue
            for micro in micro_batches:
                room = range(machines.gpus // (tp * pp), 0, -1)
                dp = next((n for n in room if batch % (n * micro) == 0), 0)
                if dp:
                    yield tp, pp, dp, micro


def is_refused_with_stages(config: Config) -> bool:
    """DeepSpeed can deadlock: the trainer refuses it."""
    return config.train.precision == "fp16" and config.parallel.zero_stage == 0


def planned(config: Config, machines: Machines, sizes: tuple[int, int, int, int]) -> Planned:
    """One layout, with as little recomputation as lets it fit."""
    tp, pp, dp, micro = sizes
    count = config.train.global_batch // (dp * micro)
    own = settled(config, sizes)
    split = stages(config.model.layers, pp)
    room = (machines.memory - machines.reserve) * GIB
    for recompute in ways(config):
        memory, stage = fullest(own, split, (tp, dp, count), recompute)
        if memory.total <= room:
            break
    work = [estimates.stage_flops(own, part, recompute) for part in split]
    return Planned(
        tp=tp,
        pp=pp,
        dp=dp,
        micro_batch=micro,
        micro_batches=count,
        recompute=recompute,
        layers=tuple(part.layers for part in split),
        balance=estimates.balance(work),
        bubble=estimates.bubble(pp, count),
        stage=stage,
        memory=memory,
        fits=memory.total <= room,
        ramp_fault=ramp_fault(own, dp * micro),
        filled_from=pp * dp * micro,
        seconds=estimates.iteration_seconds(work, count, tp * machines.tflops * 1e12),
    )


def settled(config: Config, sizes: tuple[int, int, int, int]) -> Config:
    """The configuration of a layout."""
    own = copy.deepcopy(config)
    p = own.parallel
    p.tp, p.pp, p.dp, own.train.micro_batch = sizes
    return own


def ways(config: Config) -> list[str]:
    """How much may be computed again, least first; what was asked for is kept."""
    m = config.model
    if m.recompute:
        return ["full"]
    part = ["attention"] if is_core(config) or m.recompute_attention else []
    return [*([] if m.recompute_attention else ["none"]), *part, "full"]


def fullest(
    config: Config, split: tuple[Stage, ...], sizes: tuple[int, int, int], recompute: str
) -> tuple[Memory, int]:
    """The memory of the stage that has most, and its number."""
    each = [rank_memory(config, split, i, sizes, recompute) for i in range(len(split))]
    most = max(range(len(each)), key=lambda i: each[i].total)
    return each[most], most


def ramp_fault(config: Config, step: int) -> str:
    """Which batch of the ramp-up is no multiple of micro-batch x dp; empty where all are."""
    for size in batch_size(config.train).sizes():
        if size % step:
            return f"{size} % {step} = {size % step}"
    return ""
