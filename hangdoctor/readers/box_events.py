"""Events of the training in a black box: what the job itself has said, such as a spike of its loss.

Boxes of older probes have no such table, or name another region there: they have no events.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable

from msgspec import Struct

from ..probe import format as fmt
from .box_header import number

_MOST = 4096  # entries of a table


class TrainingEvent(Struct, frozen=True):
    """What the job said at one moment; `serial` counts its process's events from 1."""

    serial: int
    at_s: float  # seconds since the epoch, by the rank's own clock
    kind: str
    iteration: int  # -1 where it was not known
    text: str


def read_new(fd: int, head: bytes, after: int) -> list[TrainingEvent]:
    """The events of an open box with a number beyond `after`, in their order; `head` is its header.

    Raises:
        OSError: the box cannot be read any more.
    """
    return _new(head, after, lambda count, begin: os.pread(fd, count, begin))


def events_of(data: bytes) -> list[TrainingEvent]:
    """All events that a copy of a whole box holds."""
    return _new(data, 0, lambda count, begin: data[begin : begin + count])


def _new(head: bytes, after: int, read: Callable[[int, int], bytes]) -> list[TrainingEvent]:
    used = number(head, fmt.H_EVENTS_USED)
    begin, entries, width = struct.unpack_from(fmt.H_EVENTS[1], head, fmt.H_EVENTS[0])
    if used <= after or width != fmt.EVENT_BYTES or not 0 < entries <= _MOST:
        return []
    size = entries * width
    data, again = read(size, begin), read(size, begin)
    if len(data) < size or len(again) < size:
        return []
    found = []
    for serial in range(max(after + 1, used - entries + 1), used + 1):
        at = serial % entries * width
        entry = data[at : at + width]
        event = _event(entry) if entry == again[at : at + width] else None
        # Else it is written over by a later one just now: the number in the header goes up last.
        if event is not None and event.serial == serial:
            found.append(event)
    return found


def _event(entry: bytes) -> TrainingEvent | None:
    """None for one that is being written."""
    serial, at, iteration, kind, text, check, _ = fmt.EVENT.unpack(entry)
    if not serial or check != serial & 0xFFFFFFFF:
        return None
    return TrainingEvent(serial, at / 1e9, _words(kind), iteration, _words(text))


def _words(raw: bytes) -> str:
    return raw.split(b"\0")[0].decode("utf-8", "replace")
