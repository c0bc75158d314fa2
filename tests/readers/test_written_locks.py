"""Lock files that hold a process id: who polls for one waits for that rank."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoctor.model.capture import Frame, ProcessSample, RankCapture, ThreadSample
from hangdoctor.readers import written_locks

RANK = "import sys; print('up', flush=True); sys.stdin.read()"


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[list[RankCapture]]:
    """Two ranks that run in the same folder; the second sleeps where it acquires a lock."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(2):
            process = subprocess.Popen(
                [sys.executable, "-I", "-c", RANK],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=tmp_path,
            )
            started.append(process)
            assert process.stdout is not None and process.stdout.readline() == b"up\n"
        yield [RankCapture(pid=started[0].pid, rank=0), polling(started[1].pid)]
    finally:
        for process in started:
            process.kill()
            process.communicate()


def polling(pid: int, function: str = "LockFile.acquire") -> RankCapture:
    frames = [Frame(function, "/app/mining.py", 29), Frame("main", "/app/train.py", 3)]
    frames[0].catches = "FileExistsError"
    thread = ThreadSample(pid, "MainThread", syscall="clock_nanosleep", frames=frames)
    return RankCapture(pid=pid, rank=1, samples=[ProcessSample(0.0, threads=[thread])])


def written(folder: Path, text: str, name: str = "negatives.lock") -> Path:
    path = folder / "cache" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", ["{}", "{}\n", "{}\nn1\n"], ids=["number", "line", "with host"])
def test_the_rank_that_the_file_names_holds_the_lock(
    ranks: list[RankCapture], tmp_path: Path, text: str
) -> None:
    path = written(tmp_path, text.format(ranks[0].pid))
    written_locks.attach(ranks)
    assert ranks[0].lock is None and ranks[1].lock is not None
    assert (ranks[1].lock.pid, ranks[1].lock.path) == (ranks[0].pid, str(path))


@pytest.mark.timeout(60)
def test_what_may_be_another_files_number_is_no_holder(
    ranks: list[RankCapture], tmp_path: Path
) -> None:
    def told() -> bool:
        ranks[1].lock = None
        written_locks.attach(ranks)
        return ranks[1].lock is not None

    holder, waiter = ranks[0].pid, ranks[1].pid
    path = written(tmp_path, str(waiter))
    assert not told(), "its own"
    path.write_text(f"{os.getpid()}")
    assert not told(), "no rank"
    path.write_text(f"step {holder}")
    assert not told(), "another text"
    path.write_text(str(holder))
    os.utime(path, (1e9, 1e9))
    assert not told(), "written before that process ran: the number is that of an earlier one"
    path.unlink()
    path.symlink_to(written(tmp_path, str(holder), name="state"))
    assert not told(), "a link"
    path.unlink()
    os.mkfifo(path)
    assert not told(), "a pipe that nobody writes"
    path.unlink()
    written(tmp_path, str(holder))
    assert told()
    written(tmp_path, str(holder), name="other.lock")
    assert not told(), "which of two it waits for does not show"


@pytest.mark.timeout(60)
def test_who_sleeps_elsewhere_waits_for_no_lock(ranks: list[RankCapture], tmp_path: Path) -> None:
    written(tmp_path, str(ranks[0].pid))
    elsewhere = polling(ranks[1].pid, "wait_for_batch")
    written_locks.attach([ranks[0], elsewhere])
    assert elsewhere.lock is None
    of_a_server = polling(ranks[1].pid)  # as Redis keeps it: no file is in its way
    of_a_server.samples[0].threads[0].frames[0].catches = "LockNotOwnedError"
    written_locks.attach([ranks[0], of_a_server])
    assert of_a_server.lock is None
