"""Which process holds the file lock that this one waits for, by /proc/locks: proc_locks(5)."""

from __future__ import annotations

import os

_MOST = 1 << 18  # bytes of it that are read: some thousand locks
_CHUNK = 1 << 16


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
    text = b""
    try:
        fd = os.open("/proc/locks", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        while len(text) < _MOST:
            part = os.read(fd, _CHUNK)
            if not part:
                break
            text += part
    except OSError:
        return []
    finally:
        os.close(fd)
    return [line for line in text.splitlines() if len(line.split()) >= 8]
