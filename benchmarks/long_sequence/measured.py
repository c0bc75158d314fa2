"""Real steps of the trainer by length of the sequence: samples and TFLOPs a second, peak memory."""

from __future__ import annotations

import json
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.trainer_parity.__main__ import launch
from hangdoctor.train.config import load_config
from hangdoctor.train.data.tokenizer import load_tokenizer
from hangdoctor.train.flops import padded_vocab, step_flops, tflops

from .computed import MODES

_WARM_UP = 2  # steps that are not counted


@dataclass(frozen=True)
class Measured:
    """One training. `failed`: "OOM" or the error, where it did not come to its end."""

    mode: str
    length: int
    samples_per_second: float = 0.0
    tflops: float = 0.0
    peak_mb: float = 0.0
    failed: str = ""


def measure(mode: str, length: int, ranks: int, flags: list[str], steps: int) -> Measured:
    """Train `steps` steps on `ranks` ranks and take the median of those after the first two.

    Sizes and precision are `flags`; one sample a step.
    """
    words = [*flags, *(MODES[mode] if ranks > 1 else [])]
    words += ["--model.seq_length", str(length), "--parallel.tp", str(ranks)]
    words += "--train.micro_batch 1 --train.global_batch 1 --data.workers 0".split()
    words += ["--train.iterations", str(_WARM_UP + steps), "--log.memory", "true"]
    with tempfile.TemporaryDirectory(prefix="hangdoctor-long-") as folder:
        metrics = Path(folder) / "metrics.jsonl"
        try:
            launch(ranks, [*words, "--log.metrics", str(metrics)])
        except RuntimeError as error:
            return Measured(mode, length, failed=reason(str(error)))
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    seconds = statistics.median(line["seconds"] for line in lines[_WARM_UP:])
    return Measured(
        mode,
        length,
        samples_per_second=1 / seconds,
        tflops=tflops(operations(words), seconds, ranks),
        peak_mb=max(line["memory_MB"] for line in lines),
    )


def operations(words: list[str]) -> float:
    """FLOPs of one sample, recomputation counted."""
    config = load_config(words)
    tokens = config.model.vocab_size or load_tokenizer(config.data.tokenizer).vocab_size
    rows = padded_vocab(tokens, config.model.vocab_multiple, config.parallel.tp)
    m = config.model
    return step_flops(m, rows, 1, ffn=config.ffn_hidden_size, recompute=m.recompute)


def reason(error: str) -> str:
    """OOM where memory was missing, on a GPU or by the kernel's killer; else the last line."""
    marks = ("OutOfMemoryError", "out of memory", "exitcode  : -9", "can't allocate memory")
    if any(mark in error for mark in marks):
        return "OOM"
    return error.strip().splitlines()[-1][:120]
