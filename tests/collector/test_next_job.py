"""State belongs to one run of one job, and a folder to one collector."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hangdoctor.collector.core import Core, Settings
from hangdoctor.collector.instructions import Log
from hangdoctor.errors import CollectorError
from hangdoctor.transport import messages as msg
from hangdoctor.transport.folder_lock import has_collector, only_collector
from hangdoctor.watch.job_rhythm import Learned
from hangdoctor.watch.stall_watch import Settings as Bounds
from hangdoctor.watch.stall_watch import StallWatch
from tests.collector.test_core import Talk, of
from tests.support.stage import hangdoctor, wait_until


class Run(Talk):
    """A core that learns the rhythm of a job with one node."""

    def __init__(self, learned: Learned | None = None) -> None:
        super().__init__()
        self.core = Core(Settings(), StallWatch(Bounds(), learned))

    def begins(self, began: float, job: str = "127.0.0.1:29500", node: str = "n1") -> list[object]:
        hello = msg.Hello(f"a-{node}", node, job, 2, began=began)
        return list(of(Log, self.say(f"a-{node}", hello)))

    def steps(self, each_s: float, count: int = 60) -> int:
        """Iterations of that length, and how often the pauses were taken for a stall."""
        alarms = 0
        for step in range(count):
            for second in range(max(1, round(each_s))):
                idle = float(second)
                told = [
                    msg.RankNow(
                        r, idle_s=idle, iteration=step + 1, op="all_reduce", inside=True, box=True
                    )
                    for r in (0, 1)
                ]
                self.seq["n1"] = self.seq.get("n1", 0) + 1
                self.say("a-n1", msg.Report(self.seq["n1"], 1, 0.0, told))
                alarms += any(
                    isinstance(getattr(i, "message", None), msg.Capture) for i in self.tick()
                )
        return alarms


def test_the_next_slower_job_under_the_same_name_starts_afresh() -> None:
    first = Run()
    first.begins(1_000.0)
    assert first.steps(1.0) == 0 and first.core.watchdog.learned.warm
    kept = first.core.watchdog.learned
    second = Run(kept)
    assert any("from the start" in log.text for log in second.begins(2_000.0))  # type: ignore[attr-defined]
    assert not second.core.watchdog.learned.warm
    assert second.steps(15.0, count=6) == 0


def test_a_collector_that_restarts_within_a_run_keeps_the_rhythm() -> None:
    first = Run()
    first.begins(1_000.0)
    first.steps(1.0)
    again = Run(first.core.watchdog.learned)
    assert not any("from the start" in log.text for log in again.begins(1_001.0))  # type: ignore[attr-defined]
    assert again.core.watchdog.learned.warm
    again.begins(1_003.0, node="n2")  # a node that comes later
    assert again.core.watchdog.learned.warm


def test_another_run_while_the_collector_lives_starts_afresh_once() -> None:
    talk = Run()
    talk.begins(1_000.0)
    talk.begins(1_000.0, node="n2")
    talk.steps(1.0)
    assert any("from the start" in log.text for log in talk.begins(2_000.0))  # type: ignore[attr-defined]
    talk.core.watchdog.learned.warm = True
    assert not any("from the start" in log.text for log in talk.begins(2_000.5, node="n2"))  # type: ignore[attr-defined]
    assert talk.core.watchdog.learned.warm


def test_one_collector_a_folder(tmp_path: Path) -> None:
    with only_collector(tmp_path):
        assert has_collector(tmp_path)
        with pytest.raises(CollectorError, match="already running"), only_collector(tmp_path):
            pass
        assert has_collector(tmp_path)
    assert not has_collector(tmp_path)
    with only_collector(tmp_path):
        pass


def test_a_second_collector_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    words = ["collect", "--folder", str(folder), "--bind", "tcp://127.0.0.1:*"]
    first = subprocess.Popen([sys.executable, "-m", "hangdoctor", *words], stderr=subprocess.PIPE)
    try:
        wait_until(lambda: (folder / "collector.json").exists(), "the collector listens")
        before = (folder / "collector.json").read_bytes()
        second = hangdoctor(*words, cwd=tmp_path, code=1).stderr
        assert f"process {first.pid} on" in second and "--folder DIR" in second
        # Before it started an agent or wrote anything.
        beside = hangdoctor("sidecar", "--local", "--folder", str(folder), cwd=tmp_path, code=1)
        assert "already running" in beside.stderr
        assert (folder / "collector.json").read_bytes() == before
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate(timeout=30)
    third = subprocess.Popen([sys.executable, "-m", "hangdoctor", *words], stderr=subprocess.PIPE)
    try:  # a lock ends with its process, however that ends
        wait_until(
            lambda: (
                third.poll() is not None
                or str(third.pid) in (folder / "collector.lock").read_text()
            ),
            "the next collector has the folder",
        )
        assert third.poll() is None
    finally:
        third.terminate()
        third.communicate(timeout=30)


def test_the_begin_of_a_run_is_that_of_its_launcher(tmp_path: Path) -> None:
    """torchrun starts ranks again: the run goes on."""
    from hangdoctor.readers import discover

    (tmp_path / "torchrun").write_text(
        "import os, subprocess, sys, time\n"
        "time.sleep(1.1)\n"  # so that launcher and rank differ in their clock ticks
        "env = {**os.environ, 'RANK': '0', 'WORLD_SIZE': '1', 'MASTER_ADDR': 'began.test', 'MASTER_PORT': '1'}\n"
        "rank = subprocess.Popen([sys.executable, '-c', 'import sys; print(1, flush=True); sys.stdin.read()'], env=env)\n"
        "rank.wait()\n"
    )
    words = [sys.executable, str(tmp_path / "torchrun")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None and launcher.stdin is not None
        launcher.stdout.readline()
        [job] = [j for j in discover.find_jobs() if "began.test" in j.key]
        assert 1.0 <= job.started - job.began < 60 and abs(job.began - time.time()) < 120
        assert job.ranks[0].ppid == launcher.pid and os.getpid() != launcher.pid
        launcher.stdin.close()
        launcher.wait(timeout=30)
