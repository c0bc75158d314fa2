"""One rank of the comparison, started under torchrun: measures and leaves a JSON line a rank.

rank.py SECONDS OUT trainer FLAGS...     the trainer; on one rank also the plain GPT, turn by turn
rank.py SECONDS OUT pipeline FLAGS...    DeepSpeed's minimal pipeline of the same sizes
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from benchmarks.trainer.plain_gpt import Block, PlainTraining, yardstick
from hangdoctor.model.layout import Layout
from hangdoctor.train import deepspeed_guards, session
from hangdoctor.train.config import Config, load_config
from hangdoctor.train.engine import build_engine
from hangdoctor.train.launch import discover
from hangdoctor.train.schedule import batch_size
from hangdoctor.train.topology import Topology, build_topology
from hangdoctor.train.validate import Machine, check

VOCAB = 1024  # a multiple of every padding: no run has rows that another has not


def timed(steps: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Median seconds a step of each; they take turns, so that the machine's moods hit all alike.

    The count of rounds is agreed on by the ranks: a step is a collective.
    """
    for step in steps.values():
        step()
    began = time.perf_counter()
    for step in steps.values():
        step()
    once = torch.tensor([time.perf_counter() - began])
    dist.all_reduce(once, op=dist.ReduceOp.MAX)
    spent: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(max(5, int(seconds / once.item()))):
        for name, step in steps.items():
            began = time.perf_counter()
            step()
            spent[name].append(time.perf_counter() - began)
    return {name: statistics.median(times) for name, times in spent.items()}


def fixed_batches(config: Config, topology: Topology) -> Any:
    """Random tokens without end: loading is not what is compared."""
    shape = (config.train.micro_batch, config.model.seq_length + 1)
    tokens = torch.randint(VOCAB, shape, generator=torch.Generator().manual_seed(1))
    labels = tokens[:, 1:].contiguous()
    batch = (tokens[:, :-1].contiguous(), (labels, torch.ones_like(labels, dtype=torch.float32)))
    while True:
        yield batch


def trainer_step(config: Config, topology: Topology) -> Callable[[], Any]:
    """One step of the trainer, on a batch that stays the same."""
    context = session.build_context(config, topology, VOCAB)
    engine = build_engine(config, topology, context, batch_size(config.train).at(0))
    batches = fixed_batches(config, topology)
    return lambda: float(engine.train_batch(data_iter=batches))


def plain_step(config: Config) -> Callable[[], Any]:
    """One step of the plain GPT of the same sizes."""
    m, t = config.model, config.train
    training = PlainTraining(
        yardstick(VOCAB, m.hidden_size, m.heads, m.layers, length=m.seq_length), t.micro_batch
    )
    batch = torch.randint(VOCAB, (t.global_batch, m.seq_length + 1))
    return lambda: training.step(batch)


class _First(nn.Module):
    def __init__(self, hidden: int, length: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, hidden), nn.Embedding(length, hidden)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.tokens(tokens) + self.positions.weight


class _Last(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm, self.out = nn.LayerNorm(hidden), nn.Linear(hidden, VOCAB, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.norm(x))


def pipeline_step(config: Config, topology: Topology) -> Callable[[], Any]:
    """What DeepSpeed's pipeline tutorial does: layers in a list, nothing of the trainer."""
    import deepspeed

    m, t = config.model, config.train
    layers = [
        _First(m.hidden_size, m.seq_length),
        *(Block(m.hidden_size, m.heads) for _ in range(m.layers)),
        _Last(m.hidden_size),
    ]
    with deepspeed_guards.quiet():
        module = deepspeed.PipelineModule(
            layers=layers,
            num_stages=config.parallel.pp,
            loss_fn=lambda logits, batch: F.cross_entropy(logits.flatten(0, 1), batch[0].flatten()),
            partition_method="parameters",
        )
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
        settings = deepspeed_guards.engine_config(config, t.global_batch)
        engine, *_ = deepspeed.initialize(model=module, optimizer=optimizer, config=settings)
    batches = fixed_batches(config, topology)
    return lambda: float(engine.train_batch(data_iter=batches))


def main() -> None:
    """Measure, and leave a line of JSON."""
    seconds, out, what, flags = float(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4:]
    config, launch = load_config(flags), discover()
    check(config, Machine(launch.world_size, False))
    deepspeed = deepspeed_guards.prepare(False)
    launch.export()
    limit = timedelta(seconds=300)
    dist.init_process_group("gloo", rank=launch.rank, world_size=launch.world_size, timeout=limit)
    deepspeed.init_distributed("gloo", timeout=limit, verbose=False)
    p = config.parallel
    topology = build_topology(Layout(dp=p.dp, pp=p.pp, tp=p.tp), limit, torch.device("cpu"))
    steps = {what: (trainer_step if what == "trainer" else pipeline_step)(config, topology)}
    if launch.world_size == 1 and what == "trainer":
        steps["plain"] = plain_step(config)
    medians = timed(steps, seconds)
    memory = psutil.Process().memory_full_info()
    line = {
        "rank": launch.rank,
        "seconds": medians,
        "rss_mb": memory.rss / 1e6,
        "pss_mb": memory.pss / 1e6,
    }
    (out / f"{launch.rank}.json").write_text(json.dumps(line))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
