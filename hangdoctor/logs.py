"""The log of long-lived processes, on stderr: one line a fact, and only a few of one kind.

Lines that differ only in their numbers are of one kind. A few of a kind are written in each
`_WINDOW_S`; the others are counted, and the count is logged when the window is over. Whatever
floods a process, its log stays small.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
from collections.abc import Callable

from msgspec import Struct

from .text.plain import visible

_WINDOW_S = 60.0
_OF_A_KIND = 40
_IN_ALL = 1000
_KINDS = 500
_OTHER = "(other lines)"
_VARIES = re.compile(r"[0-9a-f]{8,}|\d+")


class _Kind(Struct):
    first: str  # the message that opened the window
    since: float
    written: int = 0
    left_out: int = 0


class Sparing(logging.Handler):
    """Hands records on to another handler, as long as they are few."""

    def __init__(self, to: logging.Handler, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.to, self.now = to, now
        self._kinds: dict[str, _Kind] = {}
        self._all = _Kind("", now())
        self._due = 0.0
        self._sums = threading.RLock()

    def emit(self, record: logging.LogRecord) -> None:
        """Hand the record on while there is room for it; what is left out is counted."""
        now = self.now()
        with self._sums:
            self._sum_up(now)
            if self._has_room(record.getMessage(), now):
                self.to.handle(record)

    def close(self) -> None:
        """Say what was left out, and end."""
        with self._sums:
            self._sum_up(float("inf"))
        self.to.close()
        super().close()

    def _has_room(self, message: str, now: float) -> bool:
        name = _VARIES.sub("#", message[:200])
        if name not in self._kinds and len(self._kinds) >= _KINDS:
            name = _OTHER
        kind = self._kinds.setdefault(name, _Kind(message[:200], now))
        if kind.written >= _OF_A_KIND or self._all.written >= _IN_ALL:
            kind.left_out += 1
            return False
        kind.written += 1
        self._all.written += 1
        return True

    def _sum_up(self, now: float) -> None:
        """End the windows that are over."""
        if now < self._due:
            return
        self._due = now + 1.0
        if now - self._all.since > _WINDOW_S:
            self._all = _Kind("", now)
        over = [name for name, kind in self._kinds.items() if now - kind.since > _WINDOW_S]
        for name in over:
            kind = self._kinds.pop(name)
            if kind.left_out:
                said = f"{kind.left_out} more lines like this were not logged: {kind.first}"
                self.to.handle(
                    logging.makeLogRecord(
                        {"msg": said, "levelno": logging.WARNING, "levelname": "WARNING"}
                    )
                )


class _OneLine(logging.Formatter):
    """What a job calls itself begins no line of its own."""

    def format(self, record: logging.LogRecord) -> str:
        record.msg, record.args = visible(record.getMessage()), None
        return super().format(record)


def to_stderr(form: str = "%(asctime)s hangdoctor: %(message)s") -> None:
    """Log to stderr, sparingly; as `logging.basicConfig` this changes nothing where a log is set up
    already.
    """
    stream = logging.StreamHandler(sys.stderr)
    stream.setFormatter(_OneLine(form, "%H:%M:%S"))
    logging.basicConfig(level=logging.INFO, handlers=[Sparing(stream)])
