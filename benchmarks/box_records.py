"""Records of a black box with their fields by name, for benchmarks that write boxes themselves."""

from __future__ import annotations

from typing import NamedTuple

from hangdoctor.probe import format as fmt


class Record(NamedTuple):
    """One operation, its fields in the order of `probe.format.RECORD`; times in ns of the wall
    clock.
    """

    serial: int
    seq: int
    entered: int
    group: int = fmt.NO_GROUP
    signature: int = 0
    site: int = 0
    thread: int = 0
    root_or_peer: int = -1
    iteration: int = 0
    flags: int = 0
    uid_low: int = 0
    left: int = 0
    outcome: int = 0
    check: int = 0

    def packed(self) -> bytes:
        """Its bytes as they lie in the ring."""
        return fmt.RECORD.pack(*self)
