"""python -m benchmarks.diagnose_speed [--rounds 5] [--beside TREE] [--uncompiled]: what one `hangdoctor
diagnose` of a small file takes, mostly its start.

Thirty pieces of tests/data, as people post them (job logs, stacks of py-spy, gdb and others, dumps of the
Flight Recorder, answers of RAS), each given to a command of its own, one after another. `--beside`
runs a second tree (a checkout of another version) in turns with this one. Both run from a copy, whose
modules are compiled before; `--uncompiled` leaves that out, as of a checkout where Python writes no
compiled files (PYTHONDONTWRITEBYTECODE).
"""

from __future__ import annotations

import argparse
import compileall
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from msgspec import Struct

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"
SOURCES = ("hangdoctor", "agents", "train")
PATTERNS = (
    *("logs/*.log", "pyspy/*.out", "flight_recorder/gloo-*", "ras/*-2*"),
    *("stack_texts/*.txt", "served/*.txt"),
)
MOST = 30


class Taken(Struct):
    """What one command took, in seconds."""

    wall: float
    processor: float


def pieces() -> list[Path]:
    """The files and folders to diagnose, in a fixed order."""
    found = [path for pattern in PATTERNS for path in sorted(DATA.glob(pattern))]
    return found[:MOST]


def copied(tree: Path, to: Path, compiled: bool) -> Path:
    """The packages of a tree without compiled files of before."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in SOURCES:
        shutil.copytree(tree / name, to / name, symlinks=True, ignore=ignored)
        if compiled:
            compileall.compile_dir(to / name, quiet=2)
    return to


def diagnosed(piece: Path, tree: Path) -> Taken:
    """One command, by the modules of a tree."""
    env = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "hangdoctor", "diagnose", str(piece)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    subprocess.run(command, check=True, env=env, cwd="/", stdout=subprocess.DEVNULL)
    wall = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    own, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return Taken(wall, own + system)


def table(name: str, rounds: list[list[Taken]]) -> str:
    """One tree's figures: medians over the rounds, of all pieces and of each."""
    whole = median(sum(one.wall for one in taken) for taken in rounds)
    processor = median(sum(one.processor for one in taken) for taken in rounds)
    each = [[taken[place].processor for taken in rounds] for place in range(len(rounds[0]))]
    of_each = sorted(median(seconds) for seconds in each)
    return (
        f"{name}: {len(of_each)} commands in {whole:.1f} s, {processor:.1f} s of processor time; "
        f"each {median(of_each):.2f} ({of_each[0]:.2f} - {of_each[-1]:.2f})"
    )


def main() -> None:
    """Copy, run in turns, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beside", type=Path, metavar="TREE", help="a second checkout")
    parser.add_argument("--uncompiled", action="store_true", help="without compiled files")
    args = parser.parse_args()
    trees = {"this tree": ROOT}
    if args.beside:
        trees[str(args.beside)] = args.beside
    rounds: dict[str, list[list[Taken]]] = {name: [] for name in trees}
    with tempfile.TemporaryDirectory(prefix="diagnose-speed-") as folder:
        copies = {
            name: copied(tree, Path(folder, str(number)), not args.uncompiled)
            for number, (name, tree) in enumerate(trees.items())
        }
        for _ in range(args.rounds):
            turn: dict[str, list[Taken]] = {name: [] for name in trees}
            for piece in pieces():
                for name, copy in copies.items():
                    turn[name].append(diagnosed(piece, copy))
            for name, taken in turn.items():
                rounds[name].append(taken)
    for name, taken_in_rounds in rounds.items():
        print(table(name, taken_in_rounds))


if __name__ == "__main__":
    main()
