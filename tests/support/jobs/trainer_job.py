"""Ranks that train several configurations in turn: start-up costs more than the trainings.

    trainer_job.py PLAN RANKS

One process imports torch and DeepSpeed, and forks the ranks.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist

from hangdoctor.model.layout import Layout
from hangdoctor.train import deepspeed_guards, session
from hangdoctor.train.config import Config, load_config
from hangdoctor.train.data.samples import Within
from hangdoctor.train.launch import Launch, discover
from hangdoctor.train.loop import Callback, Trainer
from hangdoctor.train.topology import Topology, build_topology
from hangdoctor.train.train_state import Step
from hangdoctor.train.validate import Machine, check

LIMIT = timedelta(seconds=60)


class Observer(Callback):
    """Fingerprints of this stage's tied weight and embedding norm, and what the optimizer decays."""

    def __init__(self, path: Path) -> None:
        self.path, self.seen = path, []

    def on_start(self, trainer: Trainer) -> None:
        self.seen.append(self.look(trainer))

    def after_step(self, trainer: Trainer, step: Step) -> None:
        self.seen.append(self.look(trainer))

    def look(self, trainer: Trainer) -> dict:
        named = dict(trainer.engine.module.named_parameters())
        prints = {
            name: hashlib.sha256(p.detach().float().numpy().tobytes()).hexdigest()[:16]
            for name, p in named.items()
            if name.startswith(("tied_modules", "1.norm"))
        }
        norm = named.get("1.norm.weight")
        moved = None if norm is None else float((norm.detach().float() - 1).abs().max())
        optimizer = trainer.engine.optimizer
        inner = getattr(optimizer, "optimizer", optimizer)
        settings = [[*g["betas"], g["eps"], g["weight_decay"]] for g in inner.param_groups]
        clip = getattr(optimizer, "clip_grad", None)
        return {"prints": prints, "norm_moved": moved, "settings": settings, "clip": clip}

    def on_end(self, trainer: Trainer) -> None:
        self.path.write_text(json.dumps(self.seen))


class CutByHand:
    """Full batches, each cut to the length of its iteration here, not by the trainer."""

    def __init__(self, batches: Any, lengths: list[int], micro_batches: int) -> None:
        self.batches, self.lengths, self.micro_batches = batches, lengths, micro_batches
        self.given = 0

    def __iter__(self) -> CutByHand:
        return self

    def __next__(self) -> Any:
        end = self.lengths[self.given // self.micro_batches]
        self.given += 1
        read, (labels, mask) = next(self.batches)
        return read[:, :end].contiguous(), (labels[:, :end].contiguous(), mask[:, :end])


@contextlib.contextmanager
def cutting(flags: list[str]) -> Iterator[None]:
    """For the flags '--by-hand LENGTHS MICRO_BATCHES', which are taken out: full sequences, cut."""
    if flags[:1] != ["--by-hand"]:
        yield
        return
    _, words, micro_batches = flags[:3]
    del flags[:3]
    lengths, original = [int(word) for word in words.split(",")], session.rank_batches
    session.rank_batches = lambda *args, **options: CutByHand(
        original(*args, **options), lengths, int(micro_batches)
    )
    try:
        yield
    finally:
        session.rank_batches = original


@contextlib.contextmanager
def lacking(flags: list[str]) -> Iterator[None]:
    """For the flags '--lacking FIRST-LAST', which are taken out: data without those samples; what
    comes after them has moved up.
    """
    if flags[:1] != ["--lacking"]:
        yield
        return
    first, last = map(int, flags[1].split("-"))
    del flags[:2]

    class Lacking(Within):
        def __getitem__(self, i: int) -> Any:
            return super().__getitem__(i if i < first else i + last - first + 1)

    session.Within = Lacking
    try:
        yield
    finally:
        session.Within = Within


def become_a_rank(count: int) -> None:
    """Returns in each of the ranks. The parent ends with the last of them, or with the first that fails."""
    gc.collect()
    gc.freeze()  # or each rank copies every object of torch's when it collects
    for rank in range(count):
        if os.fork() == 0:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(count))
            return
    for _ in range(count):
        _, status = os.wait()
        if status:
            os._exit(1)
    os._exit(0)


def join(deepspeed: ModuleType, count: int) -> Launch:
    """Returns in each of the ranks, with its process group."""
    become_a_rank(count)
    launch = discover()
    launch.export()
    world = {"rank": launch.rank, "world_size": launch.world_size}
    dist.init_process_group("gloo", timeout=LIMIT, **world)
    deepspeed_guards.set_group_timeout(LIMIT.seconds)
    deepspeed.init_distributed("gloo", timeout=LIMIT, verbose=False)
    return launch


def checked(config: Config, world_size: int) -> Topology:
    """The process groups of a configuration that `world_size` ranks can train."""
    check(config, Machine(world_size, False))
    p = config.parallel
    return build_topology(Layout(dp=p.dp, pp=p.pp, tp=p.tp), LIMIT, torch.device("cpu"))


def main() -> None:
    plan = Path(sys.argv[1])
    deepspeed = deepspeed_guards.prepare(False)
    launch = join(deepspeed, int(sys.argv[2]))
    for name, flags in json.loads(plan.read_text()).items():
        with cutting(flags), lacking(flags):
            config = load_config([*flags, "--log.metrics", str(plan.parent / f"{name}.jsonl")])
            topology = checked(config, launch.world_size)
            observer = Observer(plan.parent / f"{name}.rank{launch.rank}.json")
            session.train(config, topology, [observer])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
