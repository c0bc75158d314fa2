"""The 1.3B model by the trainer itself, in each way that it can be set, and a plain GPT beside it."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import trainer_jobs
from .options import Options
from .processes import ROOT
from .worker import JobFailed

STEPS = 10
_WARM_UP = 3  # steps that are not counted: what is compiled, allocated and chosen
GLOBAL_BATCH = 16
# name -> flags. `auto` compiles the block, with Triton's kernels around it.
WAYS = {
    "triton": ["--kernels", "triton", "--compile", "off"],
    "both": ["--kernels", "triton", "--compile", "inductor"],
    "auto": ["--kernels", "auto", "--compile", "inductor"],
    "torch": ["--kernels", "torch", "--compile", "off"],
    "compile": ["--kernels", "torch", "--compile", "inductor"],
}
PLAIN = "plain_gpt"
_SMALL = (
    "--model.layers 2 --model.hidden_size 32 --model.heads 2 --model.seq_length 16 "
    "--model.position rope --train.precision fp32"
)
_SHAPE = {"layers": 24, "hidden": 2048, "heads": 16, "length": 2048}
_SMALL_SHAPE = {"layers": 2, "hidden": 32, "heads": 2, "length": 16}


def units(options: Options) -> list[str]:
    """WAY recompute=on|off micro=4|8, what the trainer does by itself first."""
    if options.smoke:
        return ["torch recompute=off micro=4", f"{PLAIN} micro=4"]
    made = []
    for recompute, micro in (("off", 8), ("off", 4), ("on", 8), ("on", 4)):
        made += [f"{way} recompute={recompute} micro={micro}" for way in WAYS]
        if recompute == "off":
            made.append(f"{PLAIN} micro={micro}")
    # The yardstick early: without it no one knows what the rows mean.
    made.remove(f"{PLAIN} micro=8")
    made.insert(2, f"{PLAIN} micro=8")
    return made


def measure(unit: str, options: Options) -> Iterator[dict[str, Any]]:
    """The row of one way.

    Raises:
        JobFailed: the training ended with an error, out of memory for one.
    """
    way, *settings = unit.split(" ")
    chosen = dict(word.split("=") for word in settings)
    with tempfile.TemporaryDirectory(prefix="hangdoctor-gpu-") as name:
        if way == PLAIN:
            yield _row(unit, way, chosen, plain(int(chosen["micro"]), options))
            return
        flags = [*trainer_jobs.prepare(Path(name), options), *flags_of(way, chosen, options)]
        made = trainer_jobs.train([(unit, flags)], Path(name), options, quick=True, profile=True)
        for line in made:
            yield _row(unit, way, chosen, line)


def flags_of(way: str, chosen: dict[str, str], options: Options) -> list[str]:
    """The trainer's flags of one way."""
    if options.smoke:
        base = _SMALL.split()
    else:
        base = ["--config", str(ROOT / "train" / "configs" / "gpu_1b3.yaml")]
    recompute = "true" if chosen["recompute"] == "on" else "false"
    return [
        *base,
        *("--train.iterations", str(_steps(options) + 1)),  # the last one is profiled
        *("--train.micro_batch", chosen["micro"]),
        *("--train.global_batch", str(GLOBAL_BATCH)),
        *("--model.recompute", recompute),
        *WAYS[way],
    ]


def _steps(options: Options) -> int:
    return 4 if options.smoke else STEPS


def plain(micro: int, options: Options) -> dict[str, Any]:
    """The line of the plain GPT; its FLOPs are those of the trainer's model of the same sizes."""
    from hangdoctor.train.config import ModelConfig
    from hangdoctor.train.flops import step_flops

    shape = _SMALL_SHAPE if options.smoke else _SHAPE
    vocab = trainer_jobs.SMALL_VOCAB if options.smoke else trainer_jobs.VOCAB
    sizes = {
        **shape,
        "vocab": vocab,
        "batch": GLOBAL_BATCH,
        "micro": micro,
        "steps": _steps(options),
        "device": options.device,
        "compiled": not options.smoke,
    }
    (line,) = trainer_jobs.lines("plain_gpt", [json.dumps(sizes)], options)
    model = ModelConfig(
        layers=shape["layers"],
        hidden_size=shape["hidden"],
        heads=shape["heads"],
        seq_length=shape["length"],
    )
    done = step_flops(model, vocab, GLOBAL_BATCH, ffn=4 * shape["hidden"], recompute=False)
    return {**line, "tokens": GLOBAL_BATCH * shape["length"], "model_flops": done}


def _row(unit: str, way: str, chosen: dict[str, str], line: dict[str, Any]) -> dict[str, Any]:
    if "failed" in line:
        raise JobFailed(line["failed"])
    counted = [step["seconds"] for step in line["steps"][_WARM_UP:]]
    seconds = statistics.median(counted)
    return {
        "way": way,
        "recompute": chosen.get("recompute", "off"),
        "micro_batch": int(chosen["micro"]),
        "steps": len(counted),
        "step_ms": 1000 * seconds,
        "tokens_per_s": line["tokens"] / seconds,
        "tflops": line["model_flops"] / seconds / 1e12,
        "memory_mb": line["memory_mb"],
        "first_loss": line["steps"][0]["loss"],
        "last_loss": line["steps"][-1]["loss"],
        "slowest": line.get("slowest", []),
    }
