"""Errors of the GPU driver (Xid) in the kernel's log, where this user may read it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ..model.gpu import Xid
from ..text.late import late
from ..text.plain import readable

DEVICE = Path("/dev/kmsg")
_RECORD = 8192  # bytes of one, at most; a smaller read fails
_MOST_RECORDS = 200_000
_KEPT = 100
# "3,1207,88000123,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=7791, name=python, GPU has fallen off ..."
_LINE = late(
    rb"^\d+,\d+,(?P<us>\d{1,18}),[^;]*;NVRM: Xid \((?:PCI:)?(?P<bus>[\w:.]{1,20})\): "
    rb"(?P<number>\d{1,4})(?:,\s*pid='?(?P<pid>\d{1,9}))?(?P<says>[^\n]{0,300})"
)
_BUS = late(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})")


def bus_of(text: str) -> str:
    """``00000000:3B:00.0`` and ``PCI:0000:3b:00`` -> ``0000:3b:00``; "" where it is neither."""
    match = _BUS.search(text)
    return f"{match[1][-4:]}:{match[2]}:{match[3]}".lower() if match else ""


def xids(since: float, path: Path = DEVICE) -> list[tuple[str, Xid]]:
    """[(place on the bus, error)] since that moment, the oldest first; none without the right.

    Args:
        since: seconds since the epoch.
        path: the device; each read gives one record.
    """
    booted = time.time() - time.monotonic()  # the log counts from the start of the machine
    found: list[tuple[str, Xid]] = []
    for record in _records(path):
        match = _LINE.match(record)
        if match is None:
            continue
        at = round(booted + int(match["us"]) / 1e6, 1)
        if at >= since:
            says = readable(match["says"].decode(errors="replace").strip(" ,"))
            xid = Xid(int(match["number"]), at, int(match["pid"] or 0), says)
            found.append((bus_of(match["bus"].decode(errors="replace")), xid))
    return found[-_KEPT:]


def _records(path: Path) -> list[bytes]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    found: list[bytes] = []
    try:
        for _ in range(_MOST_RECORDS):
            try:
                record = os.read(fd, _RECORD)
            except BrokenPipeError:
                continue  # overwritten while it was read: the next one is there
            if not record:
                break
            found += [line for line in record.splitlines() if b"NVRM" in line]
    except OSError:
        return found  # EAGAIN: that was the last one
    finally:
        os.close(fd)
    return found
