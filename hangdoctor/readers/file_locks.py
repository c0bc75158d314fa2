"""Who holds the file locks that processes wait for, by /proc/locks: flock, lockf and fcntl on this
node. Format: proc_locks(5).

A rank that tries again and again waits for no lock as the kernel sees it. Its stack shows that it
does, and the file is the one locked file that it has open, or else the one that another rank has
locked. Or it sleeps in native code, as SQLite does, and has a file open that another rank has locked.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from ..model.capture import Frame, LockHolder, RankCapture
from ..text.late import late
from ..text.plain import readable
from . import proc

_LINE = late(r"^(\d+):\s+(->\s+)?\S+\s+\S+\s+\S+\s+(-?\d+)\s")
_EXCLUSIVE = late(r"^\d+:\s+(?!->)\S+\s+\S+\s+WRITE\s+(\d+)\s+(\S+)\s")
_ACQUIRES = late(r"(?:^|[._])(?:acquire|lock)(?:_|$)", re.I)
_SLEEPS = frozenset({"clock_nanosleep", "nanosleep", "select", "pselect6"})
_PYTHON_SLEEPS = late(r"sleep|select|\bwait")
_INNERMOST = 4  # frames of a stack


def holders(text: str) -> dict[int, int]:
    """{process that waits for a lock: process that holds it} of the text of /proc/locks. A lock of
    an open file description (OFD) has no process there and is left out.
    """
    held: dict[str, int] = {}
    found: dict[int, int] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        number, waits, pid = match[1], match[2], int(match[3])
        if not waits:
            held[number] = pid
        elif pid > 0 and held.get(number, 0) > 0:
            found[pid] = held[number]
    return found


def attach(ranks: Iterable[RankCapture]) -> None:
    """Set `lock` of the ranks that wait for a file lock."""
    text, some = _text(), list(ranks)
    found = holders(text)
    held = exclusive(text)
    for rank in some:
        if rank.pid in found:
            rank.lock = holder(found[rank.pid])
        else:
            _attach_of_child(rank, found, held)
    _attach_polled(some, held)


def _attach_of_child(rank: RankCapture, found: dict[int, int], held: dict[str, int]) -> None:
    """A worker of its loader, or another child, may be what waits."""
    waits = next((child.pid for child in rank.children if child.pid in found), 0)
    if not waits:
        return
    rank.lock = holder(found[waits])
    rank.lock.child = waits
    opened = _open_files(waits)
    rank.lock.path = next((opened[key] for key in opened if held.get(key) == rank.lock.pid), "")


def exclusive(text: str) -> dict[str, int]:
    """{device and inode of a file: the process that has it locked for itself}."""
    matches = (_EXCLUSIVE.match(line) for line in text.splitlines())
    return {match[2]: int(match[1]) for match in matches if match is not None}


def _attach_polled(ranks: list[RankCapture], held: dict[str, int]) -> None:
    polling = [r for r in ranks if r.lock is None and (polls(r) or _sleeps_natively(r))]
    others = {rank.pid for rank in ranks} - {rank.pid for rank in polling}
    by_ranks = [key for key, pid in held.items() if pid in others]
    for rank in polling:
        opened = _open_files(rank.pid)
        if polls(rank):
            keys = [key for key in opened if held.get(key, rank.pid) != rank.pid] or by_ranks
        else:
            keys = [key for key in by_ranks if key in opened]
        if len(keys) == 1:
            found = holder(held[keys[0]])
            found.path = opened.get(keys[0]) or _open_files(found.pid).get(keys[0], "")
            rank.lock = found


def polls(rank: RankCapture) -> bool:
    """Whether the main thread sleeps in a function that acquires a lock, by its name."""
    return any(_ACQUIRES.search(frame.name) for frame in _asleep(rank)[:_INNERMOST])


def _sleeps_natively(rank: RankCapture) -> bool:
    """Whether the main thread sleeps in a call that is not Python's own sleep."""
    frames = _asleep(rank)
    code = frames[0].code if frames else ""
    return bool(code) and not _PYTHON_SLEEPS.search(code)


def _asleep(rank: RankCapture) -> list[Frame]:
    """The frames of the main thread, where it sleeps for a time; else none."""
    threads = rank.samples[-1].threads if rank.samples else []
    main = next((t for t in threads if t.name == "MainThread"), None)
    return main.frames if main is not None and main.syscall in _SLEEPS else []


def _open_files(pid: int) -> dict[str, str]:
    """{device and inode, as /proc/locks has them: path} of the files that a process has open."""
    found: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                of = descriptor.stat()
                key = f"{os.major(of.st_dev):02x}:{os.minor(of.st_dev):02x}:{of.st_ino}"
                found[key] = readable(str(descriptor.readlink()))
    return found


def _text() -> str:
    try:
        return Path("/proc/locks").read_text()
    except OSError:
        return ""  # then nothing is known of locks, as on a system without this file


def holder(pid: int) -> LockHolder:
    """What is known of the process that holds a lock."""
    argv = proc.command_line(pid)  # empty: it has ended, and a process that it started has the lock
    return LockHolder(pid, readable(proc.status_fields(pid).get("Name", "")), argv)
