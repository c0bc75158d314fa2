"""Which process holds the file lock that this one waits for, by /proc/locks: proc_locks(5)."""

from __future__ import annotations

from .record_core import read_proc

_MOST = 1 << 18  # bytes of it that are read: some thousand locks


def holder(pid: int) -> int:
    """The process that holds the lock that `pid` waits for; 0 where it waits for none, or nothing
    shows who has it.
    """
    held: dict[bytes, int] = {}
    for line in _lines():
        number, *words = line.split()
        waits = words[:1] == [b"->"]
        told = words[4 if waits else 3]
        owner = int(told) if told.isdigit() else 0  # -1 of a lock that no process has alone
        if waits and owner == pid:
            return max(0, held.get(number, 0))
        if not waits:
            held[number] = owner
    return 0


def _lines() -> list[bytes]:
    """Of /proc/locks, whole ones; none where it cannot be read."""
    return [line for line in read_proc("/proc/locks", _MOST).splitlines() if len(line.split()) >= 8]
