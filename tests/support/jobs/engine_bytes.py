"""Ranks that count the bytes of their own engine: weights, gradients, optimizer, and the most that
autograd keeps for the backward pass at a time.

    engine_bytes.py CASES RANKS
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from trainer_job import checked, join

from hangdoctor.train import deepspeed_guards, session
from hangdoctor.train.config import load_config
from hangdoctor.train.loop import Callback, Trainer
from hangdoctor.train.train_state import Step


def distinct(tensors: Iterable[torch.Tensor | None]) -> int:
    """Bytes of the storages behind them, each once."""
    storages = [t.untyped_storage() for t in tensors if t is not None]
    return sum({s.data_ptr(): s.nbytes() for s in storages}.values())


class Saved:
    """What autograd keeps, but for the weights: bytes now, and the most so far."""

    def __init__(self, weights: set[int]) -> None:
        self.weights, self.kept, self.now, self.most = weights, Counter[int](), 0, 0

    def pack(self, tensor: torch.Tensor) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() in self.weights:
            return tensor
        return Kept(self, tensor.detach(), storage.data_ptr(), storage.nbytes())

    @staticmethod
    def unpack(kept: Any) -> torch.Tensor:
        return kept.tensor if isinstance(kept, Kept) else kept


class Kept:
    """A saved tensor; its storage counts until the last one of it is let go."""

    def __init__(self, saved: Saved, tensor: torch.Tensor, place: int, size: int) -> None:
        self.saved, self.tensor, self.place, self.size = saved, tensor, place, size
        if not saved.kept[place]:
            saved.now += size
            saved.most = max(saved.most, saved.now)
        saved.kept[place] += 1

    def __del__(self) -> None:
        self.saved.kept[self.place] -= 1
        if not self.saved.kept[self.place]:
            self.saved.now -= self.size


class Bytes(Callback):
    """Counts in the second step: the optimizer has its moments by then."""

    def __init__(self, path: Path) -> None:
        self.path, self.hooks, self.saved = path, None, None

    def before_step(self, trainer: Trainer) -> None:
        weights = {p.untyped_storage().data_ptr() for p in trainer.engine.module.parameters()}
        self.saved = Saved(weights)
        self.hooks = torch.autograd.graph.saved_tensors_hooks(self.saved.pack, self.saved.unpack)
        self.hooks.__enter__()

    def after_step(self, trainer: Trainer, step: Step) -> None:
        self.hooks.__exit__(None, None, None)
        engine = trainer.engine
        zero = engine.optimizer
        inner = getattr(zero, "optimizer", zero)
        moments = [t for state in inner.state.values() for t in state.values() if t.dim()]
        both = [p for group in inner.param_groups for p in group["params"]]
        masters = [p for p in both if p.untyped_storage().data_ptr() not in self.saved.weights]
        found = {
            "weights": distinct(engine.module.parameters()),
            "gradients": distinct(getattr(zero, "fp32_groups_gradients_flat", [])),
            "optimizer": distinct([*moments, *masters]),
            "saved": self.saved.most,
        }
        self.path.write_text(json.dumps(found))


def main() -> None:
    """Each case in turn; RANK's bytes of NAME go to NAME.RANK.json beside CASES."""
    cases = Path(sys.argv[1])
    deepspeed = deepspeed_guards.prepare(False)
    launch = join(deepspeed, int(sys.argv[2]))
    for name, flags in json.loads(cases.read_text()).items():
        config = load_config(flags)
        topology = checked(config, launch.world_size)
        session.train(config, topology, [Bytes(cases.parent / f"{name}.{launch.rank}.json")])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
