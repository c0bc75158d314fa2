"""The signals that a rank's own handlers were there for, from its black box, and when they came."""

from __future__ import annotations

import struct

from msgspec import Struct

from ..probe import format as fmt


class CaughtSignal(Struct):
    """One signal by its name, with the times of its first and its last arrival."""

    name: str
    first_s: float
    last_s: float


def signals_of(data: bytes) -> list[CaughtSignal]:
    """Those that came; none in boxes of older probes, which end with the ring."""
    begin, records, width = struct.unpack_from(fmt.H_RING[1], data, fmt.H_RING[0])
    at = begin + records * width
    if at + len(fmt.SIGNALS) * fmt.SIGNAL.size > len(data):
        return []
    found = []
    for index, name in enumerate(fmt.SIGNALS):
        first, last = fmt.SIGNAL.unpack_from(data, at + index * fmt.SIGNAL.size)
        if 0 < first <= last:
            found.append(CaughtSignal(name, first / 1e9, last / 1e9))
    return found
