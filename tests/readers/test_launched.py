"""`--pid` of a launcher means the ranks that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hangdoctor.model.capture import NodeCapture
from hangdoctor.readers import launched
from hangdoctor.readers.node import CaptureOptions, capture_node
from tests.support.stage import wait_until

pytestmark = pytest.mark.timeout(120)
RUN = (sys.executable, "-m", "hangdoctor", "run", "--")
# Says that it runs, and waits.
WAITS = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(600)"
BOTH = """
import os, subprocess, sys
words = [sys.executable, "-c", sys.argv[2]]
several = [subprocess.Popen([*words, f"{sys.argv[1]}.{rank}"],
                            env=os.environ | {"RANK": str(rank), "WORLD_SIZE": "2"}) for rank in (0, 1)]
[one.wait() for one in several]
"""
Start = Callable[..., int]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def one(*words: str, **environ: str) -> int:
        env = os.environ | {"HANGDOCTOR_DIR": str(tmp_path / "boxes")} | environ
        started.append(subprocess.Popen(words, env=env, start_new_session=True))
        return started[-1].pid

    yield one
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=20)


def said(*files: Path) -> list[int]:
    """The processes that wrote these files, once all have."""
    wait_until(lambda: all(f.exists() and f.read_text() for f in files), "all of them run")
    return [int(f.read_text()) for f in files]


def captured(*pids: int) -> NodeCapture:
    return capture_node(CaptureOptions(pids=list(pids), settle_s=0.1))


def test_the_ranks_below_hangdoctor_run_are_shown(start: Start, tmp_path: Path) -> None:
    files = [tmp_path / f"at.{rank}" for rank in (0, 1)]
    launcher = start(*RUN, sys.executable, "-c", BOTH, str(tmp_path / "at"), WAITS)
    pids = said(*files)
    capture = captured(launcher)
    assert [(r.rank, r.pid, r.world_size) for r in capture.ranks] == [
        (0, pids[0], 2),
        (1, pids[1], 2),
    ]
    assert [n for n in capture.notes if "2 ranks below it" in n], capture.notes


def test_one_launcher_for_each_rank(start: Start, tmp_path: Path) -> None:
    files = [tmp_path / f"at.{rank}" for rank in (0, 1)]
    launchers = [
        start(*RUN, sys.executable, "-c", WAITS, str(f), RANK=str(rank), WORLD_SIZE="2")
        for rank, f in enumerate(files)
    ]
    pids = said(*files)
    capture = captured(*launchers)
    assert [(r.rank, r.pid) for r in capture.ranks] == list(enumerate(pids))


def test_a_training_of_one_process_is_shown_itself(start: Start, tmp_path: Path) -> None:
    launcher = start(*RUN, sys.executable, "-c", WAITS, str(tmp_path / "at"))
    [pid] = said(tmp_path / "at")
    capture = captured(launcher)
    assert [(r.rank, r.pid) for r in capture.ranks] == [(0, pid)]
    assert [n for n in capture.notes if f"process {pid} below it" in n], capture.notes


def test_a_process_that_has_started_nothing_has_no_ranks(start: Start, tmp_path: Path) -> None:
    pid = start(sys.executable, "-c", WAITS, str(tmp_path / "at"))
    said(tmp_path / "at")
    assert launched.ranks_below(pid) == ([], [])
    assert launched.program_below(pid) == 0
