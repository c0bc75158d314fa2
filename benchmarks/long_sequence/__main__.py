"""Which sequence lengths fit, and how fast they go: plain tensor parallel, sequence parallel, Ulysses.

    python -m benchmarks.long_sequence --lengths 2k..256k --modes none,sp,ulysses
    python -m benchmarks.long_sequence --run 256..1k --run-ranks 2 --json long.json

The first table is computed by the planner's arithmetic: memory of a rank of gpu_1b3.yaml, with ALiBi
or other options where they follow `--`. The second is measured here, a small model on a CPU and the
same as in the first table on GPUs; without a GPU it says so. Prints Markdown.
Exit codes: 0 done, 1 a training failed for another reason than memory, 2 usage.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from benchmarks.progress import say
from benchmarks.trainer_parity.__main__ import ROOT
from hangdoctor.train.config import Config, load_config
from hangdoctor.train.options import ConfigError
from hangdoctor.train.output import write_json
from hangdoctor.train.planning.memory import GIB

from .computed import MODES, RECOMPUTE, longest, rank_bytes
from .measured import Measured, measure

_LARGE = ["--config", str(ROOT / "train" / "configs" / "gpu_1b3.yaml")]
_SMALL = (
    "--model.layers 2 --model.hidden_size 64 --model.heads 4 --model.position rope "
    "--train.precision fp32"
).split()


def tokens(text: str) -> int:
    """ "2k" -> 2048."""
    number = int(text[:-1]) * 1024 if text[-1:] in ("k", "K") else int(text)
    if number < 1:
        raise ValueError(text)
    return number


def lengths(text: str) -> list[int]:
    """ "2k..16k" -> 2048, 4096, 8192, 16384; or a list with commas; "" -> none.

    Raises:
        ArgumentTypeError: neither.
    """
    try:
        first, dots, last = text.partition("..")
        if not dots:
            return [tokens(word) for word in text.split(",") if word]
        found, end = [tokens(first)], tokens(last)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not like 2k..256k or 2k,6k") from None
    while found[-1] * 2 <= end:
        found.append(found[-1] * 2)
    return found


def modes(text: str) -> list[str]:
    """Names of modes, with commas between.

    Raises:
        ArgumentTypeError: another name.
    """
    found = text.split(",")
    if not set(found) <= set(MODES):
        raise argparse.ArgumentTypeError(f"'{text}': modes are {', '.join(MODES)}")
    return found


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.long_sequence",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--lengths", type=lengths, default="2k..256k", help="computed (default 2k..256k)"
    )
    made.add_argument(
        "--modes", type=modes, default="none,sp,ulysses", help="default none,sp,ulysses"
    )
    made.add_argument("--tp", type=int, default=8, help="ranks that share a sequence (default 8)")
    made.add_argument("--memory", type=float, default=80.0, help="GiB of a GPU (default 80)")
    made.add_argument(
        "--reserve", type=float, default=4.0, help="GiB of it for CUDA and NCCL (default 4)"
    )
    made.add_argument(
        "--run", type=lengths, default="256..1k", help="run for real; '' for none (default 256..1k)"
    )
    made.add_argument("--run-ranks", type=int, default=2, help="ranks of these (default 2)")
    made.add_argument("--steps", type=int, default=5, help="steps that are counted (default 5)")
    made.add_argument("--json", metavar="FILE|-", help="write all numbers as JSON")
    made.add_argument("options", nargs="*", help="of the trainer, after --")
    return made


def size(count: int) -> str:
    """2048 -> "2k"."""
    return f"{count // 1024}k" if count % 1024 == 0 else str(count)


def columns(options: argparse.Namespace) -> list[tuple[str, str]]:
    """(mode, recompute) of each column of the first table."""
    return [(mode, recompute) for mode in options.modes for recompute in RECOMPUTE]


def first_table(config: Config, options: argparse.Namespace) -> Iterator[str]:
    """GiB of a rank by length, and the longest that fits."""
    room, heads = options.memory - options.reserve, columns(options)
    yield f"Computed, not run: GiB of a rank, TP {options.tp}, micro-batch 1, {options.memory:g} GiB a GPU, {options.reserve:g} of them kept\n"
    names = [f"{mode}{', recompute' if again == 'full' else ''}" for mode, again in heads]
    yield f"| sequence | {' | '.join(names)} |"
    yield "|---" * (1 + len(names)) + "|"
    for length in options.lengths:
        cells = []
        for mode, again in heads:
            gib = rank_bytes(config, mode, length, again) / GIB
            cells.append(f"{gib:.1f}" if gib <= room else "OOM")
        yield f"| {size(length)} | {' | '.join(cells)} |"
    ends = [size(longest(config, mode, again, room)) for mode, again in heads]
    yield f"| longest | {' | '.join(ends)} |"


def second_table(found: Sequence[Measured], has_gpu: bool) -> Iterator[str]:
    """What was measured, beside the shortest sequence of the same mode."""
    where = "on GPUs" if has_gpu else "on a CPU, a small model; not yet run on a GPU"
    yield f"\nMeasured {where}: one sample a step\n"
    yield "| mode | sequence | of the shortest | samples/s | tokens/s | TFLOP/s a rank | of the shortest | peak MB of rank 0 |"
    yield "|---|---|---|---|---|---|---|---|"
    shortest: dict[str, Measured] = {}
    for one in found:
        if one.failed:
            yield f"| {one.mode} | {size(one.length)} | | {one.failed} | | | | |"
            continue
        base = shortest.setdefault(one.mode, one)
        rate = one.samples_per_second
        cells = [one.mode, size(one.length), f"{one.length / base.length:g}", f"{rate:.3f}"]
        cells += [f"{rate * one.length:.0f}", f"{one.tflops:.4g}"]
        cells += [f"{one.tflops / base.tflops:.0%}", f"{one.peak_mb:.0f}"]
        yield f"| {' | '.join(cells)} |"


def run(options: argparse.Namespace, has_gpu: bool) -> list[Measured]:
    """Every mode at every length that is to be run, one after the other."""
    flags = [*(_LARGE if has_gpu else _SMALL), *options.options]
    found = []
    for mode in options.modes:
        for length in options.run:
            say(f"{mode}, {size(length)}: {options.steps} steps with {options.run_ranks} ranks")
            found.append(measure(mode, length, options.run_ranks, flags, options.steps))
    return found


def as_data(config: Config, options: argparse.Namespace, found: Sequence[Measured]) -> Any:
    """Both tables as plain data; memory in bytes."""
    room = options.memory - options.reserve
    computed = [
        {
            "mode": mode,
            "recompute": again,
            "longest": longest(config, mode, again, room),
            "bytes": {n: rank_bytes(config, mode, n, again) for n in options.lengths},
        }
        for mode, again in columns(options)
    ]
    return {
        "schema": "hangdoctor.long_sequence/1",
        "tp": options.tp,
        "gpu": torch.cuda.is_available(),
        "computed": computed,
        "measured": [dataclasses.asdict(one) for one in found],
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Print both tables."""
    made = parser()
    options = made.parse_args(argv)
    try:
        config = load_config([*_LARGE, *options.options, "--parallel.tp", str(options.tp)])
    except ConfigError as error:
        made.error(str(error))
    off = [n for n in [*options.lengths, *options.run] if n % options.tp or n % options.run_ranks]
    if off:
        made.error(f"the ranks share a sequence: {off[0]} is no multiple of --tp and --run-ranks")
    has_gpu = torch.cuda.is_available()
    found: list[Measured] = []
    lines = sys.stderr if options.json == "-" else sys.stdout
    for line in first_table(config, options):
        print(line, file=lines, flush=True)
    if options.run:
        found = run(options, has_gpu)
        for line in second_table(found, has_gpu):
            print(line, file=lines, flush=True)
    if options.json:
        write_json(options.json, as_data(config, options, found))
    return int(any(one.failed not in ("", "OOM") for one in found))


if __name__ == "__main__":
    sys.exit(main())
