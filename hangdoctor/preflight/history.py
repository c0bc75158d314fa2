"""What earlier tests of the network found: one JSON object a line in the user's own folder.

Bounded, 0600, written under a lock; a damaged line is passed over.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from ..errors import BadInput
from ..files import read_of_folder

FILE = "preflight.jsonl"
MAX_LINES = 1000
_MAX_BYTES = 4 << 20
_WEEK_S = 7 * 86400.0
_LOCK_S = 2.0


class Fault(Struct):
    """A node (one unit), a link (two), or units that fail together."""

    units: list[str]
    status: str  # "failed" or "slow"


class Run(Struct):
    """One run: when (seconds since the epoch), among which units, and what was at fault."""

    at: float
    units: list[str]
    faults: list[Fault] = []


class History:
    """The file in a folder, which is made when the first run is kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def runs(self) -> list[Run]:
        """All runs, in the order in which they were kept; none where the file cannot be read."""
        try:
            data = read_of_folder(self.folder / FILE, _MAX_BYTES)
        except (OSError, BadInput):
            return []
        found = []
        for line in data.splitlines():
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                found.append(msgspec.json.decode(line, type=Run))
        return found

    def keep(self, run: Run) -> None:
        """Add a run; the oldest lines go where there are too many.

        Raises:
            OSError: it cannot be written, or another process keeps the lock.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._lock():
            kept = [*self.runs(), run][-MAX_LINES:]
            staging = self.folder / f".{FILE}.{os.getpid()}"
            with open(staging, "wb", opener=_private) as file:
                file.writelines(msgspec.json.encode(one) + b"\n" for one in kept)
            staging.rename(self.folder / FILE)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        with open(self.folder / f"{FILE}.lock", "ab", opener=_private) as file:
            end = time.monotonic() + _LOCK_S
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.05)
            yield


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def times_this_week(runs: Sequence[Run], units: Sequence[str], now: float) -> dict[str, int]:
    """{"failed": n, "slow": n} of the last seven days, for exactly these units."""
    counts: dict[str, int] = {}
    for run in runs:
        if not 0 <= now - run.at < _WEEK_S:
            continue
        for fault in run.faults:
            if sorted(fault.units) == sorted(units):
                counts[fault.status] = counts.get(fault.status, 0) + 1
    return counts
