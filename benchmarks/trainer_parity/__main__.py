"""Losses and gradient norms of every topology against a plain torch reference.

    python -m benchmarks.trainer_parity [--iterations 50] [--precision fp32 bf16] [--only 2x2x2 ...]

Prints a table (TP x PP x DP) of the largest differences, and fails where one is above its limit.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.progress import say
from hangdoctor.train.config import load_config
from hangdoctor.train.data.prepare import prepared_standard_library
from hangdoctor.train.data.samples import build_samples

from . import reference

LIMITS = {"fp32": 1e-5, "bf16": 1e-3}
ROOT = Path(__file__).resolve().parents[2]
BASE = """
model: {layers: 4, hidden_size: 64, heads: 4, seq_length: 64}
train: {micro_batch: 1, global_batch: 16, rampup: "8 8 120", iterations: 50}
optimizer: {lr: 3.0e-4, min_lr: 3.0e-5, warmup_samples: 64}
data: {path: stdlib, workers: 0}
log: {interval: 1000}
"""


@dataclass(frozen=True)
class Case:
    """One run of the trainer: sizes, and flags beside them."""

    tp: int
    pp: int
    dp: int
    flags: tuple[str, ...] = ()
    note: str = ""

    @property
    def name(self) -> str:
        """TP x PP x DP, and what else is special about it."""
        return f"{self.tp}x{self.pp}x{self.dp}{' ' + self.note if self.note else ''}"


SEQUENCE = ("--parallel.sequence_parallel", "true")
CASES = [
    Case(1, 1, 1),
    Case(2, 2, 2),
    Case(2, 2, 2, SEQUENCE, "sequence parallel"),
    Case(1, 2, 4),
    Case(4, 2, 1),
    Case(4, 2, 1, SEQUENCE, "sequence parallel"),
    Case(2, 1, 4),
    Case(2, 1, 4, SEQUENCE, "sequence parallel"),
    Case(2, 2, 2, ("--model.recompute", "true"), "recompute"),
    Case(2, 1, 2, ("--parallel.ulysses", "true"), "Ulysses"),
]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def launch(ranks: int, flags: list[str], timeout: float = 1500.0) -> str:
    """Run the trainer under torchrun; returns its output.

    Raises:
        RuntimeError: it failed; the message is its last lines.
    """
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(ranks)]
    command += ["--master_port", str(free_port()), "-m", "hangdoctor.train", *flags]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=timeout, check=False
    )
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(flags)}: exit code {done.returncode}\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}"
        )
    return done.stdout


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """What a run has written for each iteration."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def reference_run(work: Path, flags: list[str]) -> list[dict[str, float]]:
    """The reference, from weights that a one-process run writes out before it learns anything."""
    folder = work / "start"
    still = [
        "--optimizer.lr",
        "0",
        "--optimizer.min_lr",
        "0",
        "--optimizer.weight_decay",
        "0",
        "--train.exit_after",
        "1",
    ]
    launch(1, [*flags, *still, "--checkpoint.dir", str(folder)])
    config = load_config(flags)
    vocab = 257
    weights = reference.load_weights(folder / "global_step1", config.model.layers, vocab)
    if config.data.path == "stdlib":
        config.data.path = prepared_standard_library(config.data.cache, "byte")
    samples = build_samples(config.data, 0, config.model.seq_length, config.train.seed)
    return reference.train(config.as_dict(), weights, samples)


def compare(
    case: Case, expected: list[dict[str, float]], flags: list[str], work: Path
) -> tuple[float, float]:
    """Largest difference of the losses, and largest relative difference of the gradient norms."""
    out = work / f"{case.name.replace(' ', '_')}.jsonl"
    out.unlink(missing_ok=True)
    sizes = [
        "--parallel.tp",
        str(case.tp),
        "--parallel.pp",
        str(case.pp),
        "--log.metrics",
        str(out),
    ]
    launch(case.tp * case.pp * case.dp, [*flags, *sizes, *case.flags])
    got = read_metrics(out)
    if len(got) != len(expected):
        raise RuntimeError(f"{case.name}: {len(got)} iterations, {len(expected)} expected")
    loss = max(abs(g["loss"] - e["loss"]) for g, e in zip(got, expected, strict=True))
    norm = max(
        abs(g["grad_norm"] - e["grad_norm"]) / e["grad_norm"]
        for g, e in zip(got, expected, strict=True)
    )
    return loss, norm


def main(argv: list[str] | None = None) -> int:
    """Run each topology, and fail where one is too far from the reference."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.trainer_parity", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--iterations", type=int, default=50)
    parser.add_argument("--precision", nargs="+", default=["fp32", "bf16"], choices=list(LIMITS))
    parser.add_argument("--only", nargs="+", default=[], help="names of the table's rows to run")
    options = parser.parse_args(argv)
    bad = 0
    print(
        "| TP x PP x DP | precision | iterations | loss: largest difference | gradient norm: largest relative difference |"
    )
    print("|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="trainer-parity-") as name:
        work = Path(name)
        (work / "base.yaml").write_text(BASE)
        for precision in options.precision:
            flags = ["--config", str(work / "base.yaml"), "--train.precision", precision]
            flags += ["--train.iterations", str(options.iterations)]
            say(f"{precision}: the reference on one device")
            expected = reference_run(work / precision, flags)
            for case in CASES:
                if options.only and case.name not in options.only:
                    continue
                say(f"{precision}: {case.name}")
                loss, norm = compare(case, expected, flags, work)
                ok = loss <= LIMITS[precision] and norm <= LIMITS[precision]
                bad += not ok
                mark = "" if ok else f" **above {LIMITS[precision]:g}**"
                print(
                    f"| {case.name} | {precision} | {len(expected)} | {loss:.1e} | {norm:.1e}{mark} |",
                    flush=True,
                )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
