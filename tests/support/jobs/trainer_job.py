"""Ranks that train several configurations in turn: start-up costs more than the trainings.

    trainer_job.py PLAN RANKS

One process imports torch and DeepSpeed, and forks the ranks. A case whose name ends in "without A-B"
reads data that lack samples A to B.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from hangdoctor.model.layout import Layout
from hangdoctor.train import deepspeed_guards, session
from hangdoctor.train.config import load_config
from hangdoctor.train.data.samples import Within
from hangdoctor.train.launch import discover
from hangdoctor.train.loop import Callback, Trainer
from hangdoctor.train.topology import build_topology
from hangdoctor.train.train_state import Step
from hangdoctor.train.validate import Machine, check


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


def lacking(first: int, last: int) -> type[Within]:
    """Data without those samples: what comes after them has moved up."""

    class Lacking(Within):
        def __getitem__(self, i: int) -> Any:
            return super().__getitem__(i if i < first else i + last - first + 1)

    return Lacking


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


def main() -> None:
    plan = Path(sys.argv[1])
    limit = timedelta(seconds=60)
    deepspeed = deepspeed_guards.prepare(False)
    become_a_rank(int(sys.argv[2]))
    launch = discover()
    launch.export()
    dist.init_process_group("gloo", rank=launch.rank, world_size=launch.world_size, timeout=limit)
    deepspeed_guards.set_group_timeout(60)
    deepspeed.init_distributed("gloo", timeout=limit, verbose=False)
    for name, flags in json.loads(plan.read_text()).items():
        config = load_config([*flags, "--log.metrics", str(plan.parent / f"{name}.jsonl")])
        check(config, Machine(launch.world_size, False))
        p = config.parallel
        topology = build_topology(Layout(dp=p.dp, pp=p.pp, tp=p.tp), limit, torch.device("cpu"))
        observer = Observer(plan.parent / f"{name}.rank{launch.rank}.json")
        _, _, missing = name.partition("without ")
        first, last = map(int, (missing or "0--1").split("-", 1))
        session.Within = lacking(first, last)
        session.train(config, topology, [observer])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
