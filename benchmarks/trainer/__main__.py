"""The trainer's speed on this machine, each comparison within one run.

    python -m benchmarks.trainer [--seconds 20] [--only NAME ...]

tokens per second of one process against a plain GPT of the same sizes (in turns, same process;
nanoGPT's own where NANOGPT=/path/to/its/model.py is set); against DeepSpeed's minimal pipeline;
what TP, PP and DP cost; memory a rank. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.progress import say
from benchmarks.trainer_parity.__main__ import ROOT, free_port

# The sizes that nanoGPT gives for a CPU: 4 layers, 4 heads, width 128, 64 tokens, batches of 12.
# As nanoGPT and the plain GPT have it; its tanh formula costs twice as much on a CPU.
EXACT = "--model.activation gelu"
ONE = "--model.layers 4 --model.hidden_size 128 --model.heads 4 --model.seq_length 64 --train.micro_batch 12 --train.global_batch 12"
ALONE = " --parallel.zero_stage 0"  # one rank has no one to share an optimizer with
BIG = "--model.layers 6 --model.hidden_size 384 --model.heads 6 --model.seq_length 256 --train.micro_batch 4 --train.global_batch 8"
MANY = "--model.layers 4 --model.hidden_size 128 --model.heads 4 --model.seq_length 128 --train.micro_batch 2 --train.global_batch 16"
# name, ranks, what, flags
RUNS = [
    ("1 process, 1M parameters", 1, "trainer", ONE + ALONE),
    ("1 process, 10M parameters", 1, "trainer", BIG + ALONE),
    ("PP 2", 2, "trainer", f"{MANY} --parallel.pp 2 --model.tie_embeddings false"),
    ("DeepSpeed's minimal pipeline, PP 2", 2, "pipeline", f"{MANY} --parallel.pp 2"),
    ("reference point: 1 rank", 1, "trainer", MANY),
    ("TP 2", 2, "trainer", f"{MANY} --parallel.tp 2"),
    (
        "TP 2, sequence parallel",
        2,
        "trainer",
        f"{MANY} --parallel.tp 2 --parallel.sequence_parallel true",
    ),
    ("PP 2, tied", 2, "trainer", f"{MANY} --parallel.pp 2"),
    ("DP 2", 2, "trainer", MANY),
    ("TP 2 x PP 2 x DP 2", 8, "trainer", f"{MANY} --parallel.tp 2 --parallel.pp 2"),
]


def measure(count: int, what: str, flags: str, seconds: float) -> list[dict[str, Any]]:
    """What each rank measured.

    Raises:
        RuntimeError: a rank failed.
    """
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(count)]
        command += ["--master_port", str(free_port()), str(Path(__file__).with_name("rank.py"))]
        env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [*command, str(seconds), out, what, *flags.split(), *EXACT.split()],
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{what} {flags}\n{done.stderr[-3000:]}")
        return [json.loads((Path(out) / f"{rank}.json").read_text()) for rank in range(count)]


def tokens(flags: str) -> int:
    """Tokens of one step with these flags."""
    words = flags.split()
    return int(words[words.index("--model.seq_length") + 1]) * int(
        words[words.index("--train.global_batch") + 1]
    )


def main(argv: list[str] | None = None) -> int:
    """Measure each comparison, and print Markdown."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.trainer", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="measured seconds a run (default 20)"
    )
    parser.add_argument("--only", nargs="+", default=[], help="names of rows")
    options = parser.parse_args(argv)
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, one thread a rank; torch, gloo\n"
    )
    print(
        "| run | ranks | ms a step | tokens/s | beside it | RSS a rank, MB | PSS a rank, MB |\n|---|---|---|---|---|---|---|"
    )
    base: dict[str, float] = {}
    for name, count, what, flags in RUNS:
        if options.only and name not in options.only:
            continue
        say(f"{name}: {options.seconds:.0f} s with {count} rank{'s' * (count > 1)}")
        made = measure(count, what, flags, options.seconds)
        step = made[0]["seconds"][what]
        rate = tokens(flags) / step
        beside = ""
        if "plain" in made[0]["seconds"]:
            plain = made[0]["seconds"]["plain"]
            beside = f"plain GPT {tokens(flags) / plain:.0f} tokens/s: ratio {plain / step:.2f}"
            if name.startswith("reference"):
                base["one"] = rate
        elif "one" in base:
            beside = f"{rate / base['one']:.2f} of 1 rank"
        elif what == "pipeline" and "pp" in base:
            beside = f"the trainer's PP 2 is {base['pp'] / rate:.2f} of it"
        if name == "PP 2":
            base["pp"] = rate
        rss, pss = (max(m[k] for m in made) for k in ("rss_mb", "pss_mb"))
        print(
            f"| {name} | {count} | {1000 * step:.1f} | {rate:.0f} | {beside} | {rss:.0f} | {pss:.0f} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
