"""Running tests for `benchmarks.mutation`: in a copy of the tree, in a process of its own, and
which lines they come to.
"""

from __future__ import annotations

import json
import mmap
import os
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.progress import say

ROOT = Path(__file__).resolve().parents[1]
_COPIED = ("hangdoctor", "tests", "docs", "pyproject.toml", "README.md")
_LINES = 2000  # of one module
QUIET = [
    "-q",
    "--no-header",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "--tb=no",
    "-W",
    "ignore",
    "-m",
    "not torch and not slurm",
]


@dataclass
class Test:
    """What one test did while nothing was changed."""

    name: str
    seconds: float
    lines: dict[str, list[int]]


class Watch:
    """A pytest plugin: which lines of some files each test runs, also in children that it forks."""

    def __init__(self, root: Path, modules: list[str], told: Path) -> None:
        self.modules, self.told = modules, told
        self.begins = {str(root / m): n * _LINES for n, m in enumerate(modules)}
        self.seen = mmap.mmap(-1, len(modules) * _LINES)
        self.tests: list[dict[str, Any]] = []
        self.failed: set[str] = set()

    def trace(self, frame: Any, event: str, _: object) -> Any:
        begin = self.begins.get(frame.f_code.co_filename)
        if begin is None:
            return None
        seen = self.seen

        def line(frame: Any, event: str, _: object) -> Any:
            if event == "line" and frame.f_lineno < _LINES:
                seen[begin + frame.f_lineno] = 1
            return line

        return line

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.seen[:] = bytes(len(self.seen))
        began = time.monotonic()
        threading.settrace(self.trace)
        sys.settrace(self.trace)
        yield
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
        lines = {}
        for module, begin in zip(self.modules, self.begins.values(), strict=True):
            part = self.seen[begin : begin + _LINES]
            lines[module] = [n for n, ran in enumerate(part) if ran]
        lines = {module: ran for module, ran in lines.items() if ran}
        self.tests.append(
            {"name": item.nodeid, "seconds": time.monotonic() - began, "lines": lines}
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        good = [t for t in self.tests if t["name"] not in self.failed]
        self.told.write_text(json.dumps({"tests": good, "left_out": sorted(self.failed)}))


def copy_tree(at: Path) -> Path:
    """What the tests need of the repository."""
    tree = at / "tree"
    tree.mkdir(parents=True)
    for name in _COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, symlinks=True)
        else:
            shutil.copy2(ROOT / name, tree / name)
    return tree


def enter(tree: Path) -> None:
    """Modules and commands come from this tree."""
    os.chdir(tree)
    os.environ["PYTHONPATH"] = str(tree)
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.path[:] = [str(tree), *(p for p in sys.path if p and Path(p).resolve() != ROOT)]


def forked(seconds: float, work: Callable[[], int]) -> int:
    """The exit code of `work` in a child that is a process group; -9 where it was ended by the
    clock.
    """
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            os.setsid()
            null = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(null, stream)
            limit = int(seconds) + 1
            resource.setrlimit(
                resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1])
            )
            resource.setrlimit(
                resource.RLIMIT_AS, (8 << 30, resource.getrlimit(resource.RLIMIT_AS)[1])
            )
            code = int(work())
        finally:
            os._exit(code)
    until = time.monotonic() + seconds * 3
    ended, status = os.waitpid(pid, os.WNOHANG)
    while not ended and time.monotonic() < until:
        time.sleep(0.01)
        ended, status = os.waitpid(pid, os.WNOHANG)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    if not ended:
        _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def observe(tree: Path, modules: list[str], tests: list[str], told: Path) -> list[Test]:
    """The tests that pass, with what they run."""

    def work() -> int:
        enter(tree)
        return int(pytest.main([*QUIET, *tests], plugins=[Watch(tree, modules, told)]))

    code = forked(900, work)
    if not told.exists():
        raise SystemExit(f"the tests could not be run unchanged (exit code {code})")
    found = json.loads(told.read_text())
    for name in found["left_out"]:
        say(f"left out, it does not pass here: {name}")
    return [Test(**one) for one in found["tests"]]
