"""Events of the training in a black box: what the job says once, such as a spike of its loss.

A ring of a few entries: a job that says thousands of them writes over the oldest, and what watches it
has seen them by then.
"""

from __future__ import annotations

import struct
import threading
import time

from . import format as fmt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .box import BoxWriter

KIND_BYTES, TEXT_BYTES = 24, 200


class EventTable:
    """Writes the events of one box."""

    def __init__(self, box: BoxWriter) -> None:
        self._box = box
        self._last = 0
        self._lock = threading.RLock()  # a signal handler may speak in the middle of it

    def add(self, kind: str, text: str, iteration: int) -> None:
        """One event, cut to the room of an entry."""
        with self._lock:
            self._last = serial = self._last + 1
            self._write(serial, kind, text, iteration)
            self._box.put(fmt.H_EVENTS_USED, self._last)

    def _write(self, serial: int, kind: str, text: str, iteration: int) -> None:
        begin, entries, width = self._box.regions["events"]
        at = begin + serial % entries * width
        entry = (
            serial,
            time.time_ns(),
            iteration,
            _cut(kind, KIND_BYTES),
            _cut(text, TEXT_BYTES),
            serial & 0xFFFFFFFF,
            0,
        )
        # Without a serial number while it changes: a reader passes it over.
        struct.pack_into("<Q", self._box.map, at, 0)
        fmt.EVENT.pack_into(self._box.map, at, 0, *entry[1:])
        struct.pack_into("<Q", self._box.map, at, serial)


def _cut(text: str, room: int) -> bytes:
    """As UTF-8, without half a character at its end."""
    raw = text.encode("utf-8", "replace")[: room - 1]
    return raw.decode("utf-8", "ignore").encode()
