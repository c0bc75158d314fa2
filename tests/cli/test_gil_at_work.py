"""A rank whose thread is at work in C with the GIL, of which the main thread gets nothing: a real dump."""

from __future__ import annotations

from pathlib import Path

from hangdoctor.readers import proc
from tests.support.plain_ranks import PORT, dump, scripted
from tests.support.stage import wait_until

JOB = """
import itertools, os, sys, threading, time
from types import SimpleNamespace

comm = SimpleNamespace(Allreduce=time.sleep)
go = threading.Event()


def count():
    go.wait()
    sum(itertools.repeat(1))


def train():
    step = 0
    while True:
        step += 1


if os.environ["RANK"] == "1":
    threading.Thread(target=count, name="statistics", daemon=True).start()
open(sys.argv[1], "w").close()
go.set()
if os.environ["RANK"] == "1":
    train()
comm.Allreduce(3600)
"""


def test_the_thread_and_its_line_are_named(tmp_path: Path) -> None:
    with scripted(tmp_path, JOB, PORT + 39, 2) as pids:
        wait_until(lambda: _main_waits(pids[1]), "the main thread waits for the GIL")
        found = dump(tmp_path, f"127.0.0.1:{PORT + 39}", "--settle", "0.5")
    [cause] = found["causes"]
    assert (cause["kind"], cause["ranks"]) == ("interpreter_lock", [1]), found["summary"]
    assert "its thread 'statistics' holds the GIL and is at work in count" in cause["summary"]
    assert "slow" in [other["kind"] for other in cause["alternatives"]]


def _main_waits(pid: int) -> bool:
    threads = proc.sample_process(pid, 0.0).threads
    return any(thread.tid == pid and thread.syscall == "futex" for thread in threads)
