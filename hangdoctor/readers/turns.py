"""Turns: few of many threads do a piece of work at once; who takes long loses its turn, not its
work.

A reader of stacks needs a processor for some milliseconds. All of a node's at once would take its
processors from the ranks; one that hangs must not hold the others up.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator


def processors() -> int:
    """How many this process may use, at least 1."""
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except (AttributeError, OSError):
        return os.cpu_count() or 1


class Turns:
    """At most `limit` at once, without those that have had their turn for longer than `patience_s`."""

    def __init__(self, limit: int, patience_s: float = 0.3) -> None:
        self.limit, self.patience_s = max(1, limit), patience_s
        self._changed = threading.Condition()
        self._begun: dict[int, float] = {}  # thread -> when its turn began

    @contextlib.contextmanager
    def one(self, most_s: float) -> Iterator[None]:
        """Wait for a turn, at most so many seconds, and have it."""
        me, end = threading.get_ident(), time.monotonic() + most_s
        with self._changed:
            while (rest := self._rest_s()) > 0 and (left := end - time.monotonic()) > 0:
                self._changed.wait(min(rest, left))
            self._begun[me] = time.monotonic()
        try:
            yield
        finally:
            with self._changed:
                del self._begun[me]
                self._changed.notify()

    def _rest_s(self) -> float:
        """Seconds until a turn is free by patience alone; 0 where one is free now."""
        now = time.monotonic()
        ends = sorted(at + self.patience_s for at in self._begun.values())
        busy = [end for end in ends if end > now]
        return busy[-self.limit] - now if len(busy) >= self.limit else 0.0
