"""Who is gone without a zombie, below a launcher that would have ended all others had it failed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from hangdoctor.model.capture import RankCapture
from hangdoctor.readers import lost_ranks, reaped
from hangdoctor.readers.discover import Found
from tests.support.stage import free_port, hangdoctor, wait_until

JOB = Path(__file__).parents[1] / "support" / "jobs" / "left_early.py"
WAITS = "import {}\nprint('at', flush=True)\nimport time\ntime.sleep(600)"
PLAIN = "time"
CATCHES = "signal; signal.signal(signal.SIGTERM, lambda *_: None)"
IGNORES = "signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
BLOCKS = "signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])"


@contextlib.contextmanager
def program(first: str) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-c", WAITS.format(first)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "at\n"
        yield process
    finally:
        process.kill()
        process.wait(timeout=20)
        process.stdout.close()  # type: ignore[union-attr]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("first", "ends"), [(PLAIN, True), (CATCHES, False), (IGNORES, False), (BLOCKS, False)]
)
def test_who_would_have_ended_at_sigterm(first: str, ends: bool) -> None:
    with program(PLAIN) as one, program(first) as other:
        assert reaped.ended_well([one.pid, other.pid]) is ends


@pytest.mark.timeout(60)
def test_no_signal_reaches_one_that_is_stopped_or_gone() -> None:
    with program(PLAIN) as process:
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: psutil.Process(process.pid).status() == "stopped", "it stands", 20)
        assert not reaped.ended_well([process.pid])
    assert not reaped.ended_well([process.pid]) and not reaped.ended_well([])


def found(pid: int, environ: dict[str, str]) -> Found:
    """A rank that this test started."""
    numbers = {"rank": pid, "world_size": 4, "local_rank": pid, "local_world_size": 4}
    of_job: dict[str, Any] = {"job": "j", "started": 1.0, "user": "me", "argv": ["python"]}
    return Found(pid=pid, ppid=os.getpid(), environ=environ, **(numbers | of_job))


def test_other_launchers_do_not_tell() -> None:
    elastic, by_hand = found(2, {"TORCHELASTIC_RUN_ID": "none"}), found(3, {})
    assert not reaped.by_torchrun([elastic, by_hand])
    assert not reaped.by_torchrun([elastic])  # its parent is this test


def test_the_note_is_of_those_that_are_not_even_a_zombie() -> None:
    waited_for = [RankCapture(pid=0, rank=n, gone=True, exit_code=0) for n in (1, 2)]
    zombie = RankCapture(pid=9, rank=3, gone=True, exit_code=0)
    unknown = RankCapture(pid=0, rank=4, gone=True)
    [told] = lost_ranks.notes([*waited_for, zombie, unknown])
    assert told.startswith("ranks 1-2 ended with exit code 0: of any other, torchrun")
    assert lost_ranks.notes([zombie, unknown]) == []


@pytest.fixture
def ranks() -> Iterator[list[int]]:
    """The processes of the ranks, which torchrun starts in sessions of their own."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.torch
@pytest.mark.timeout(280)
@pytest.mark.parametrize(
    ("manner", "verdict"), [("wait", ("hang", [("dead", [1])])), ("train", ("healthy", []))]
)
def test_a_rank_that_ended_below_torchrun_ended_well(
    tmp_path: Path, ranks: list[int], manner: str, verdict: tuple[str, list[tuple[str, list[int]]]]
) -> None:
    port = str(free_port())
    words = ["-m", "torch.distributed.run", "--nproc-per-node=3", f"--master-port={port}"]
    torchrun = subprocess.Popen(
        [sys.executable, *words, str(JOB), str(tmp_path), "1", manner],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    ranks.append(torchrun.pid)
    told = [tmp_path / f"at.{rank}" for rank in range(3)]
    wait_until(lambda: all(at.exists() and at.read_text() for at in told), "all ranks", 200)
    ranks += [int(at.read_text()) for at in told]
    wait_until(lambda: not psutil.pid_exists(ranks[2]), "torchrun has waited for rank 1", 60)
    seen: dict[str, Any] = {}

    def is_found() -> bool:
        words = ("dump", "--local", "--job", f"127.0.0.1:{port}", "--json", "-", "--no-bundle")
        seen.clear()
        seen.update(json.loads(hangdoctor(*words, cwd=tmp_path, code=None).stdout))
        return (seen["status"], [(c["kind"], c["ranks"]) for c in seen["causes"]]) == verdict

    wait_until(is_found, f"{verdict}", 120)
    assert "rank 1 ended with exit code 0: of any other, torchrun" in " ".join(seen["notes"])
    assert "ank 1 " in seen["summary"] and "exit code 0" in seen["summary"]
    torchrun.kill()
    torchrun.wait(timeout=20)
