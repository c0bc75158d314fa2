"""Trainings by the trainer's own session, one after the other in this process, each watched.

train.py PLAN: PLAN is JSON: {"quick": ..., "profile": ..., "exact": ..., "runs": [[NAME,
FLAGS], ...]}. Standard output is a line of JSON a training; what the trainer prints goes to stderr.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import torch
import torch.distributed as dist

from benchmarks.gpu.worker import is_out_of_memory, is_poisoned, reason
from hangdoctor.train import deepspeed_guards, flops, session
from hangdoctor.train.config import Config, load_config
from hangdoctor.train.flops import padded_vocab
from hangdoctor.train.launch import discover
from hangdoctor.train.loop import Callback, Trainer
from hangdoctor.train.sizes import peak_memory
from hangdoctor.train.tensor_parallel import layers
from hangdoctor.train.topology import Topology
from hangdoctor.train.train_state import Step
from hangdoctor.train.validate import Machine, check

SLOWEST = 10


class Watch(Callback):
    """What each step gave and took; the kernels of the last one where that is asked for."""

    def __init__(self, device: torch.device, profile: bool, exact: bool) -> None:
        self.device, self.profile, self.exact = device, profile, exact
        self.steps: list[dict[str, Any]] = []
        self.slowest: list[dict[str, Any]] = []
        self.profiled = False
        self._began = 0.0
        self._profiler: Any = None

    def before_step(self, trainer: Trainer) -> None:
        """Start the clock, and in the last step the profiler."""
        self._wait()
        if self.profile and trainer.state.iteration + 1 == trainer.config.train.iterations:
            self._begin_profile()
        self._began = time.perf_counter()

    def after_step(self, trainer: Trainer, step: Step) -> None:
        """Note the step."""
        self._wait()
        seconds = time.perf_counter() - self._began
        noted = {
            "loss": step.loss,
            "seconds": seconds,
            "scale": step.loss_scale,
            "skipped": bool(step.skipped),
        }
        if self.exact:
            noted["weights"] = digest(trainer.engine.module)
        if self.profiled:
            self._end_profile()
        else:
            self.steps.append(noted)

    def _begin_profile(self) -> None:
        self.profiled = True
        kind = torch.profiler.ProfilerActivity
        used = [kind.CUDA] if self.device.type == "cuda" else [kind.CPU]
        try:
            self._profiler = torch.profiler.profile(activities=used)
            self._profiler.__enter__()
        except Exception as error:
            self._no_profile(error)

    def _end_profile(self) -> None:
        if self._profiler is None:
            return
        try:
            self._profiler.__exit__(None, None, None)
            self.slowest = slowest(self._profiler, self.device)
        except Exception as error:
            self._no_profile(error)

    def _no_profile(self, error: Exception) -> None:
        """The steps before it are what counts."""
        self._profiler = None
        why = f"no profile: {reason(error)}"
        self.slowest = [{"name": why, "calls": 0, "ms": 0.0, "share": 0.0}]

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def digest(module: torch.nn.Module) -> str:
    """One word for all weights, bit by bit."""
    made = hashlib.sha256()
    for parameter in module.parameters():
        made.update(parameter.detach().float().cpu().numpy().tobytes())
    return made.hexdigest()[:16]


def slowest(profiler: Any, device: torch.device) -> list[dict[str, Any]]:
    """The kernels that took most of the step: name, calls, ms, share of all."""
    which = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
    rows = [(getattr(e, which), e.key, e.count) for e in profiler.key_averages()]
    whole = sum(us for us, _, _ in rows) or 1.0
    rows.sort(reverse=True)
    return [
        {"name": name[:120], "calls": calls, "ms": us / 1000, "share": us / whole}
        for us, name, calls in rows[:SLOWEST]
    ]


def quick_weights(device: torch.device) -> None:
    """Initial weights from the device's own generator: drawn one by one they take longer than what
    is measured, and speed does not depend on them.
    """

    def normal(seed: int, name: str, rows: range, width: int, std: float) -> torch.Tensor:
        return torch.randn(len(rows), width, device=device) * std

    layers.normal = normal


def train(name: str, config: Config, topology: Topology, plan: dict[str, Any], out: TextIO) -> None:
    """One training, and its line."""
    device = topology.device
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    watch = Watch(device, bool(plan.get("profile")), bool(plan.get("exact")))
    session.train(config, topology, [watch])
    line = {
        "name": name,
        "steps": watch.steps,
        "slowest": watch.slowest,
        "memory_mb": peak_memory(device) / 1e6,
        **work(config),
    }
    print(json.dumps(line), file=out, flush=True)


def work(config: Config) -> dict[str, float]:
    """Tokens and floating point operations of a step, recomputation not counted."""
    m, t = config.model, config.train
    tokenizer = session.load_tokenizer(config.data.tokenizer)
    rows = padded_vocab(tokenizer.vocab_size, m.vocab_multiple, config.parallel.tp)
    done = flops.step_flops(m, rows, t.global_batch, ffn=config.ffn_hidden_size, recompute=False)
    return {"tokens": t.global_batch * m.seq_length, "model_flops": done}


def main() -> int:
    """Run the trainings; 1 where one failed so that no other can follow."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    plan = json.loads(Path(sys.argv[1]).read_text())
    has_gpu = torch.cuda.is_available()
    launch = discover()
    deepspeed = deepspeed_guards.prepare(has_gpu)
    launch.export(torch.cuda.device_count() if has_gpu else 0)
    if plan.get("exact"):  # where torch has such a way; where not, it warns
        torch.use_deterministic_algorithms(True, warn_only=True)
        # It would write gigabytes of buffers that DeepSpeed reserves and does not use.
        torch.utils.deterministic.fill_uninitialized_memory = False
    topology = None
    for name, flags in plan["runs"]:
        try:
            config = load_config(flags)
            check(config, Machine(launch.world_size, has_gpu))
            if topology is None:
                topology = session.join(config, launch, has_gpu, deepspeed)
                if plan.get("quick"):
                    quick_weights(topology.device)
            train(name, config, topology, plan, out)
        except Exception as error:
            line = {"name": name, "failed": reason(error)}
            print(json.dumps(line), file=out, flush=True)
            if is_poisoned(error) or is_out_of_memory(error):
                return 1
        gc.collect()
        if has_gpu:
            torch.cuda.empty_cache()
    if dist.is_initialized():
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
