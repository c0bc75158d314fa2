"""Who waits for whose file lock, by /proc/locks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoctor.model.capture import (
    Frame,
    LockHolder,
    Process,
    ProcessSample,
    RankCapture,
    ThreadSample,
)
from hangdoctor.probe import awaited_lock
from hangdoctor.readers import file_locks, lock_files
from tests.support.stage import wait_until

# Linux 6.18, ext4 and tmpfs: a process with both kinds of lock and three that wait; an OFD lock; a lease.
LOCKS = """\
1: POSIX  ADVISORY  WRITE 19720 fe:00:2146400 0 EOF
1: -> POSIX  ADVISORY  WRITE 19779 fe:00:2146400 0 EOF
2: FLOCK  ADVISORY  WRITE 19720 fe:00:2146362 0 EOF
2: -> FLOCK  ADVISORY  WRITE 19778 fe:00:2146362 0 EOF
2:  -> FLOCK  ADVISORY  READ 19781 fe:00:2146362 0 EOF
3: OFDLCK ADVISORY  WRITE -1 00:40:2926 0 EOF
3: -> POSIX  ADVISORY  WRITE 19790 00:40:2926 0 EOF
4: LEASE  ACTIVE    READ  19181 fe:00:5809108 0 EOF
"""
WAITS = """
import fcntl, sys
with open(sys.argv[1], "w") as handle:
    fcntl.{call}(handle, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


def test_waiters_are_those_behind_an_arrow() -> None:
    assert file_locks.holders(LOCKS) == {19779: 19720, 19778: 19720, 19781: 19720}


@pytest.mark.parametrize(
    "text", ["", "x\n", "1:\n", "1: ->\n", "1: -> FLOCK A W 7 fe:00:1 0 EOF\n"]
)
def test_lines_that_say_nothing_are_passed_over(text: str) -> None:
    assert file_locks.holders(text) == {}


@pytest.fixture(params=["flock", "lockf"])
def pair(request: pytest.FixtureRequest, tmp_path: object) -> Iterator[tuple[int, int]]:
    """(process that holds a lock, process that waits for it)."""
    words = [sys.executable, "-I", "-c", WAITS.format(call=request.param), f"{tmp_path}/lock"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    started: list[subprocess.Popen[bytes]] = []
    try:
        holder = subprocess.Popen(words, **pipes)  # type: ignore[call-overload]
        started.append(holder)
        assert holder.stdout.readline() == b"held\n"
        waiter = subprocess.Popen(words, **pipes)  # type: ignore[call-overload]
        started.append(waiter)
        wait_until(lambda: waiter.pid in _waiting(), "it waits for the lock")
        yield holder.pid, waiter.pid
    finally:
        for process in started:
            process.kill()
            process.communicate()


def _waiting() -> dict[int, int]:
    return file_locks.holders(Path("/proc/locks").read_text())


@pytest.mark.timeout(60)
def test_a_rank_that_waits_knows_the_holder(pair: tuple[int, int]) -> None:
    holder, waiter = pair
    ranks = [RankCapture(pid=pid, rank=place) for place, pid in enumerate((waiter, holder))]
    file_locks.attach([*ranks, RankCapture(pid=os.getpid(), rank=2)])
    assert ranks[0].lock is not None and ranks[0].lock.pid == holder
    assert ranks[0].lock.argv[1:3] == ["-I", "-c"]
    assert ranks[1].lock is None
    # As the probe of the rank itself sees it.
    assert awaited_lock.holder(waiter) == holder
    assert awaited_lock.holder(holder) == awaited_lock.holder(os.getpid()) == 0


@pytest.mark.timeout(60)
def test_a_rank_knows_the_holder_that_its_child_waits_for(pair: tuple[int, int]) -> None:
    """As a worker of its loader does."""
    holder, waiter = pair
    rank = RankCapture(pid=os.getpid(), rank=0, children=[Process(waiter, os.getpid(), "python")])
    file_locks.attach([rank])
    assert rank.lock is not None
    assert (rank.lock.pid, rank.lock.child) == (holder, waiter)
    assert rank.lock.path.endswith("/lock")


def test_exclusive_locks_are_known_by_file() -> None:
    assert file_locks.exclusive(LOCKS) == {"fe:00:2146400": 19720, "fe:00:2146362": 19720}


@pytest.mark.timeout(60)
def test_a_rank_that_polls_for_a_lock_knows_the_holder(pair: tuple[int, int]) -> None:
    """The second process has the file open, as if it tried again and again; the third has not: the one
    file that another rank has locked is the one.
    """
    holder, poller = pair
    frames = [Frame("FileLock.acquire", "/app/data.py", 9), Frame("main", "/app/train.py", 3)]
    polling = [
        sleeping(pid, rank, syscall="clock_nanosleep", frames=frames)
        for pid, rank in ((poller, 1), (os.getpid(), 2))
    ]
    locked = RankCapture(pid=holder, rank=0)
    for rank in polling:
        file_locks._attach_polled([locked, rank], {**_exclusive(), "fe:00:1": 1})
        assert rank.lock is not None and rank.lock.pid == holder
        assert rank.lock.path.endswith("/lock")
    elsewhere = [Frame("wait_for_file", "/app/data.py", 9)]
    for stack, syscall in ((elsewhere, "clock_nanosleep"), (frames, "futex")):
        rank = sleeping(poller, 1, syscall=syscall, frames=stack)
        file_locks._attach_polled([locked, rank], _exclusive())
        assert rank.lock is None


def _exclusive() -> dict[str, int]:
    return file_locks.exclusive(Path("/proc/locks").read_text())


def sleeping(pid: int, rank: int, syscall: str, frames: list[Frame]) -> RankCapture:
    thread = ThreadSample(pid, "MainThread", syscall=syscall, frames=frames)
    return RankCapture(pid=pid, rank=rank, samples=[ProcessSample(0.0, threads=[thread])])


def _in_baton(pid: int) -> RankCapture:
    baton = Frame("FileBaton.wait", "/v/torch/utils/file_baton.py", 50)
    samples = [
        ProcessSample(at, threads=[ThreadSample(pid, "MainThread", frames=[baton])])
        for at in (0.0, 1.0)
    ]
    return RankCapture(pid=pid, rank=0, samples=samples)


@pytest.mark.timeout(60)
def test_a_lock_file_that_no_process_has_open_was_left(tmp_path: Path) -> None:
    lock = tmp_path / "ext" / "fused" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    words = [sys.executable, "-I", "-c", "import sys; print('up', flush=True); sys.stdin.read()"]
    rank = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"TORCH_EXTENSIONS_DIR": "ext"},
        cwd=tmp_path,
    )
    try:
        assert rank.stdout is not None and rank.stdout.readline() == b"up\n"
        waits = _in_baton(rank.pid)
        with lock.open():  # as the process that builds has it
            lock_files.attach([waits])
            assert waits.lock is None
        lock_files.attach([waits])
        assert waits.lock == LockHolder(0, path=str(lock))
        # Which of two it waits for, nothing shows
        other = lock.parents[1] / "adam" / "lock"
        other.parent.mkdir()
        other.touch()
        waits = _in_baton(rank.pid)
        lock_files.attach([waits])
        assert waits.lock is None
    finally:
        rank.kill()
        rank.communicate()


@pytest.mark.timeout(60)
def test_who_sleeps_in_native_code_waits_for_the_file_that_another_rank_has_locked(
    tmp_path: Path,
) -> None:
    """As SQLite does; a sleep of Python's own says nothing of files that are open."""
    shared = tmp_path / "runs.db"
    code = f"import fcntl, sys; f = open({str(shared)!r}, 'a'); LOCK; "
    code += "print('up', flush=True); sys.stdin.read()"
    lines = [code.replace("LOCK", lock) for lock in ("fcntl.lockf(f, fcntl.LOCK_EX)", "0")]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-I", "-c", line], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for line in lines
    ]
    try:
        assert all(rank.stdout is not None and rank.stdout.readline() for rank in ranks)
        holder = sleeping(ranks[0].pid, 0, "futex", [Frame("barrier", "/v/c10d.py", 7)])
        for line, found in (("self.db.execute(query)", [ranks[0].pid]), ("time.sleep(9)", [])):
            frame = Frame("add", "/app/runs.py", 17, line)
            waits = sleeping(ranks[1].pid, 1, "clock_nanosleep", [frame])
            file_locks.attach([holder, waits])
            assert [lock.pid for lock in [waits.lock] if lock is not None] == found
            assert waits.lock is None or waits.lock.path == str(shared)
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
