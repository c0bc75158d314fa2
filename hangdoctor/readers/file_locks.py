"""Who holds the file locks that processes wait for, by /proc/locks: flock, lockf and fcntl on this
node. Format: proc_locks(5).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from ..model.capture import LockHolder, RankCapture
from ..text import redaction
from ..text.plain import readable
from . import proc

_LINE = re.compile(r"^(\d+):\s+(->\s+)?\S+\s+\S+\s+\S+\s+(-?\d+)\s")
_WORDS = 60  # of the command line of a holder


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
    found = holders(_text())
    for rank in ranks:
        if rank.pid in found:
            rank.lock = _holder(found[rank.pid])


def _text() -> str:
    try:
        return Path("/proc/locks").read_text()
    except OSError:
        return ""  # then nothing is known of locks, as on a system without this file


def _holder(pid: int) -> LockHolder:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        raw = b""  # it has ended, and a process that it started keeps the lock
    words = [readable(word.decode("utf-8", "replace")) for word in raw.split(b"\0")[:_WORDS]]
    argv = redaction.arguments(words[:-1] if words and not words[-1] else words)
    return LockHolder(pid, readable(proc.status_fields(pid).get("Name", "")), argv)
