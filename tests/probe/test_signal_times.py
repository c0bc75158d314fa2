"""When signals came, in the box: real processes whose handlers stay what they are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoctor.probe.record_core import native
from hangdoctor.readers.blackbox import Contents, read_box
from hangdoctor.readers.box_signals import CaughtSignal
from tests.support.probe_ranks import ROOT, environment
from tests.support.stage import wait_until

pytestmark = pytest.mark.skipif(
    not hasattr(native, "note_signals"), reason="the extension was not built"
)
RANK = """
import faulthandler, os, signal, sys, time
from hangdoctor.probe.process_probe import probe

def on_term(number, frame):
    os.write(1, f"handler {number}\\n".encode())  # print may be interrupted inside of its own flush
    save()

def save():
    time.sleep(60)

def fetch():
    print("ready", flush=True)
    time.sleep(60)

signal.signal(signal.SIGTERM, on_term)
signal.signal(signal.SIGUSR2, signal.SIG_IGN)
faulthandler.register(signal.SIGUSR1, chain=True)
probe.begin_uncounted(0, 2, "mpi")
same = signal.getsignal(signal.SIGTERM) is on_term and signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
if not same:
    sys.exit("other handlers")
if "fork" in sys.argv:
    child = os.fork()
    if child == 0:
        fetch()
    os.waitpid(child, 0)
    sys.exit(0)
if "late" in sys.argv:
    signal.signal(signal.SIGHUP, on_term)
    time.sleep(1.5)
fetch()
"""


class Rank:
    """One process with a box."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-c", RANK, *words],
            cwd=ROOT,
            env=environment(folder, HANGDOCTOR_WORKER_SERVER="0"),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.expect("ready")

    def expect(self, line: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{line}\n"

    def contents(self) -> Contents:
        [path] = self.folder.glob("*.blackbox")
        return read_box(path)

    def caught(self) -> dict[str, CaughtSignal]:
        return {found.name: found for found in self.contents().signals}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path


def ended(rank: Rank) -> str:
    rank.process.kill()
    return rank.process.communicate()[1]


def test_the_time_of_a_signal_is_in_the_box_and_its_handler_runs_once(folder: Path) -> None:
    rank = Rank(folder)
    before = time.time()
    rank.process.send_signal(signal.SIGTERM)
    rank.expect(f"handler {int(signal.SIGTERM)}")
    found = rank.caught()
    assert list(found) == ["SIGTERM"]
    assert before <= found["SIGTERM"].first_s == found["SIGTERM"].last_s <= time.time()
    ended(rank)


def test_a_handler_that_comes_later_is_seen_at_a_heartbeat(folder: Path) -> None:
    rank = Rank(folder, "late")
    rank.process.send_signal(signal.SIGHUP)
    rank.expect(f"handler {int(signal.SIGHUP)}")
    assert list(rank.caught()) == ["SIGHUP"]
    ended(rank)


def test_a_signal_without_a_handler_does_what_it_does(folder: Path) -> None:
    rank = Rank(folder)
    rank.process.send_signal(signal.SIGUSR2)  # ignored
    rank.process.send_signal(signal.SIGHUP)
    assert rank.process.wait(30) == -signal.SIGHUP
    assert not rank.caught()
    rank.process.communicate()


def test_the_handler_of_faulthandler_stays_its_own(folder: Path) -> None:
    """It ends the process by the default action that it chains to."""
    rank = Rank(folder)
    rank.process.send_signal(signal.SIGUSR1)
    assert rank.process.wait(30) == -signal.SIGUSR1
    assert "most recent call first" in rank.process.communicate()[1]
    assert not rank.caught()


def test_a_forked_child_writes_nothing_into_the_box_of_its_parent(folder: Path) -> None:
    rank = Rank(folder, "fork")
    pid = rank.process.pid
    [child] = [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    signal_to(child)
    rank.expect(f"handler {int(signal.SIGTERM)}")
    assert not rank.caught()
    signal_to(child, signal.SIGKILL)
    rank.process.communicate(timeout=30)


def signal_to(pid: int, number: signal.Signals = signal.SIGTERM) -> None:
    os.kill(pid, number)


def test_the_place_stays_as_the_signal_found_it(folder: Path) -> None:
    """What a handler does after it is no place of the hang."""
    rank = Rank(folder)

    def innermost() -> str:
        place = rank.contents().place
        return place.frames[0].name if place is not None else ""

    wait_until(lambda: innermost() == "fetch", "a place")
    rank.process.send_signal(signal.SIGTERM)
    rank.expect(f"handler {int(signal.SIGTERM)}")
    asked = rank.caught()["SIGTERM"].first_s
    wait_until(lambda: rank.contents().box.heartbeat_s > asked + 3.5, "later heartbeats")
    assert innermost() == "fetch"
    ended(rank)
