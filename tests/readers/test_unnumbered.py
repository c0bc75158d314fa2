"""Ranks of multiprocessing: none has a rank in its environment."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from hangdoctor.agents.ranks import Ranks
from hangdoctor.errors import NoRanksFound
from hangdoctor.readers.node import CaptureOptions, capture_node
from tests.support.stage import free_port, hangdoctor, wait_until

SCRIPT = Path(__file__).parents[1] / "support" / "jobs" / "spawned_job.py"
pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]
Begin = Callable[..., tuple[subprocess.Popen[bytes], str]]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Start the job, with or without `hangdoctor run`: its process and what its boxes call it."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*before: str) -> tuple[subprocess.Popen[bytes], str]:
        port = str(free_port())
        words = [*before, sys.executable, str(SCRIPT), str(tmp_path), port]
        started.append(
            subprocess.Popen(
                words,
                env=os.environ
                | {"OMP_NUM_THREADS": "1", "HANGDOCTOR_DIR": str(tmp_path / "boxes")},
                start_new_session=True,
            )
        )
        return started[-1], f"run-127.0.0.1-{port}"

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=20)


RUN = (sys.executable, "-m", "hangdoctor", "run", "--")


def stuck(folder: Path) -> bool:
    return (folder / "at.0").exists() and (folder / "at.1").exists()


def test_their_black_boxes_have_the_rank(begin: Begin, tmp_path: Path) -> None:
    _, job = begin(*RUN)
    wait_until(lambda: stuck(tmp_path), "both ranks are where they stay", 100)
    done = hangdoctor("dump", "--local", "--job", job, "--json", "-", "--no-bundle", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert (found["status"], found["job"]["world_size"]) == ("hang", 2), found
    assert [r for cause in found["causes"] for r in cause["ranks"]] == [1]
    assert "all_reduce #3" in found["causes"][0]["summary"]
    assert "evaluate" in found["causes"][0]["where"]["frame"]


def test_an_agent_finds_those_that_join_long_after_they_were_started(
    begin: Begin, tmp_path: Path
) -> None:
    (tmp_path / "wait").touch()
    _, name = begin(*RUN)
    wait_until(lambda: (tmp_path / "begun.1").exists(), "they run", 100)
    ranks = Ranks(lambda job: job.is_named(name))
    ranks.search()
    assert not ranks.tracked
    (tmp_path / "go").touch()

    def both() -> bool:
        ranks.search()
        return set(ranks.tracked) == {0, 1} and all(t.box for t in ranks.tracked.values())

    try:
        wait_until(both, "both ranks", 60)
        assert (ranks.job, ranks.world_size) == (name, 2)
    finally:
        ranks.close()


def test_without_the_probe_the_command_that_names_them_is_printed(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, _ = begin()
    wait_until(lambda: stuck(tmp_path), "both ranks are where they stay", 100)
    children = psutil.Process(process.pid).children()
    ours = [process.pid, *(child.pid for child in children)]
    monkeypatch.setattr(psutil, "pids", lambda: ours)  # other tests run on this host
    with pytest.raises(NoRanksFound) as raised:
        capture_node(CaptureOptions(timeout_s=30), "n1")
    command = raised.value.help.partition("hangdoctor ")[2].partition(".")[0]
    pids = [int(word) for word in command.split() if word.isdigit()]
    spawned = [c.pid for c in children if "--multiprocessing-fork" in c.cmdline()]
    assert f"Process {process.pid} started 2 processes" in raised.value.help
    assert pids == sorted(spawned)
    found = json.loads(
        hangdoctor(*command.split(), "--json", "-", "--no-bundle", cwd=tmp_path).stdout
    )
    assert [r for cause in found["causes"] for r in cause["ranks"]] == [1], found
