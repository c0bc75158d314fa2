"""The jobs of the pictures: the bundled trainer on eight processes, with a fault in it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from hangdoctor.cli import demo
from hangdoctor.readers import discover

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
PYTHON = (sys.executable, "-m", "hangdoctor")
_RANKS = 8
_LIMIT_S = 400.0  # of a busy machine
_SLOW_ITERATIONS = 60


def soon(condition: Callable[[], bool], what: str, seconds: float = 90.0) -> None:
    """Wait for it.

    Raises:
        TimeoutError: it did not come.
    """
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"did not come: {what}")
        time.sleep(0.2)


@contextlib.contextmanager
def started(here: Path, fault: str) -> Iterator[subprocess.Popen[str]]:
    """The demo's job with another fault, its files in `here`."""
    with demo.running_job(demo._command(None, fault, _RANKS), str(here)) as job:
        yield job


def _found() -> list[str]:
    own = f"{demo._RUN_ID}-{os.getpid()}"
    jobs = [job for job in discover.find_jobs() if own in job.key]
    return [job.key for job in jobs if len(job.ranks) == _RANKS]


def ready(job: subprocess.Popen[str]) -> str:
    """The key of the job, once all of its ranks are there."""
    soon(lambda: job.poll() is not None or bool(_found()), "eight ranks", _LIMIT_S)
    assert job.poll() is None, "the job has ended"
    return _found()[0]


def fault_of(job: subprocess.Popen[str]) -> None:
    """Wait until the fault has struck and all ranks are blocked."""
    demo._wait_for_fault(job, demo.follow(job), _LIMIT_S)
    demo._rest(_LIMIT_S)


def stragglers_of(here: Path) -> Path:
    """Let a job with a slow rank make some iterations; the folder of its boxes."""
    with started(here, "slow@5:20") as job:
        lines, iteration = demo.follow(job), 0
        while iteration < _SLOW_ITERATIONS:
            line = lines.get(timeout=_LIMIT_S)
            assert line is not None, "the job has ended"
            found = demo._ITERATION.search(line)
            iteration = int(found[1]) if found else iteration
    return here / "boxes"
