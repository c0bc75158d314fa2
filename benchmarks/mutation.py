"""Small changes in our own modules, one at a time, and whether a test notices.

    python -m benchmarks.mutation --area readers

    --area NAME | --module FILE... --tests PATH...
                 what is changed, and the tests that should notice
    --limit N    changes of each module, drawn by chance
    --seed S     the same changes for the same number
    --again FILE only those that survived by what an earlier run printed into this file

The tests run once unchanged, so that it is known which of them come to which line, and how long
they take. Then each change is made in a copy of the tree, in a process of its own with a time
limit, and the tests that come to it run until one fails. Prints every change that survives and a
table. What changes nothing that could be seen is listed, with the reason, in `mutation_equal.txt`.
Only what a test's own process runs is seen, not the commands that it starts.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from benchmarks.mutation_areas import AREAS
from benchmarks.mutation_changes import Change, changes, is_different
from benchmarks.mutation_tests import QUIET, ROOT, Test, copy_tree, enter, forked, observe
from benchmarks.progress import say

EQUAL = Path(__file__).with_name("mutation_equal.txt")
_MOST_TESTS_S = 30.0  # of tests for one change, the quickest first


@dataclass
class Result:
    """What came of the changes of one module."""

    killed: int = 0
    equal: int = 0
    survived: list[str] = field(default_factory=list)
    not_reached: list[str] = field(default_factory=list)


def chosen(change: Change, tests: list[Test]) -> list[Test]:
    """The tests that come to a change, the quickest first, as many as have the time."""

    # What is done at import is in use wherever the module is: by all tests of a file that comes to
    # it.
    files = {test.name.partition("::")[0] for test in tests if change.path in test.lines}

    def comes(test: Test) -> bool:
        if change.body is None:  # a module of nothing but data has no lines that run later
            return not files or test.name.partition("::")[0] in files
        first, last = change.body
        return any(first <= line <= last for line in test.lines.get(change.path, []))

    kept, total = [], 0.0
    for test in sorted(filter(comes, tests), key=lambda t: t.seconds):
        total += test.seconds
        if kept and total > _MOST_TESTS_S:
            break
        kept.append(test)
    return kept


_tree = Path()


def _start_worker(folder: str, began: Any) -> None:
    global _tree
    with began.get_lock():
        began.value += 1
        number = began.value
    _tree = copy_tree(Path(folder) / f"worker-{number}")
    sys.dont_write_bytecode = False
    import hypothesis  # noqa: F401  heavy ones that nothing of ours is part of, for all children
    import msgspec  # noqa: F401
    import psutil  # noqa: F401
    import zmq  # noqa: F401


@contextmanager
def changed(path: Path, new: bytes) -> Iterator[None]:
    """The file with other contents meanwhile."""
    old, status = path.read_bytes(), path.stat()
    path.write_bytes(new)
    try:
        yield
    finally:
        path.write_bytes(old)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def survives(change: Change, tests: list[Test]) -> bool:
    """In a worker: whether all these tests pass with the change made."""

    def work() -> int:
        enter(_tree)
        sys.dont_write_bytecode = True
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        return int(pytest.main([*QUIET, "-x", *(t.name for t in tests)]))

    file = _tree / change.path
    with changed(file, change.apply(file.read_bytes())):
        return forked(20 + 3 * sum(t.seconds for t in tests), work) == 0


def equal_ones() -> set[str]:
    """The changes that no test can notice, as `Change.key` writes them."""
    lines = EQUAL.read_text().splitlines() if EQUAL.exists() else []
    return {line for line in lines if line and not line.startswith(("#", " "))}


def draw(module: str, limit: int, seed: int, again: str) -> list[Change]:
    """Some changes of a module, the same for the same seed; `again` is what an earlier run printed,
    if anything.
    """
    source = (ROOT / module).read_bytes()
    found = [c for c in changes(source, module) if not again or f": {c.key(source)}\n" in again]
    random.Random(f"{seed} {module}").shuffle(found)
    kept: list[Change] = []
    for change in found:
        if len(kept) == limit:
            break
        if is_different(change, source):
            kept.append(change)
    return kept


def try_all(modules: list[str], tests: list[str], told: argparse.Namespace) -> dict[str, Result]:
    """What comes of each module's changes."""
    equal = equal_ones()
    again = told.again.read_text() if told.again else ""
    results = {m: Result() for m in modules}
    with tempfile.TemporaryDirectory(prefix="hangdoctor-mutation-") as folder:
        known = observe(
            copy_tree(Path(folder) / "first"), modules, tests, Path(folder) / "told.json"
        )
        say(f"{len(known)} tests, {sum(t.seconds for t in known):.0f} s")
        began = get_context("fork").Value("i", 0)
        with ProcessPoolExecutor(
            told.workers, get_context("fork"), _start_worker, (folder, began)
        ) as pool:
            running = []
            for module in modules:
                source = (ROOT / module).read_bytes()
                for change in draw(module, told.limit, told.seed, again):
                    mine = chosen(change, known)
                    if change.key(source) in equal:
                        results[module].equal += 1
                    elif not mine:
                        results[module].not_reached.append(f"{change.line}: {change.key(source)}")
                    else:
                        running.append(
                            (
                                module,
                                change,
                                change.key(source),
                                pool.submit(survives, change, mine),
                            )
                        )
            for module, change, key, outcome in running:
                if outcome.result():
                    results[module].survived.append(f"{change.line}: {key}")
                    print(f"SURVIVED {change.line}: {key}", flush=True)
                else:
                    results[module].killed += 1
    return results


def table(results: dict[str, Result]) -> list[str]:
    """Markdown: a line for each module."""
    lines = [
        "| module | changes | killed | survived | not reached | equal |",
        "|---|---|---|---|---|---|",
    ]
    sums = [0] * 5
    for module, one in results.items():
        numbers = [one.killed, len(one.survived), len(one.not_reached), one.equal]
        numbers.insert(0, sum(numbers))
        sums = [a + b for a, b in zip(sums, numbers, strict=True)]
        lines.append(f"| {module.removeprefix('hangdoctor/')} | {' | '.join(map(str, numbers))} |")
    return [*lines, f"| all | {' | '.join(map(str, sums))} |"]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--area", choices=sorted(AREAS))
    parser.add_argument("--module", nargs="+", default=[])
    parser.add_argument("--tests", nargs="+", default=[])
    parser.add_argument("--limit", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--again", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    told = parser.parse_args()
    area = AREAS.get(told.area, ([], []))
    modules = told.module or [
        str(p.relative_to(ROOT)) for pattern in area[0] for p in sorted(ROOT.glob(pattern))
    ]
    tests = [t for t in told.tests or area[1] if (ROOT / t).exists()]
    if not modules or not tests:
        parser.error("--area, or --module and --tests")
    os.nice(10)
    results = try_all(modules, tests, told)
    for one in results.values():
        for line in one.not_reached:
            print(f"NOT REACHED {line}")
    print("\n".join(table(results)))
    return int(any(one.survived for one in results.values()))


if __name__ == "__main__":
    sys.exit(main())
