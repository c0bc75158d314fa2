"""One entry of a black box's ring and of its table of threads, by the names of their fields.

`probe.format` has them in bytes; docs/blackbox.md says the same in words.
"""

from __future__ import annotations

from typing import NamedTuple

from ..probe import format as fmt


class Record(NamedTuple):
    """An operation, or (`is_mark`) what the job said of itself: a phase, an iteration, a
    micro-batch.
    """

    serial: int
    seq: int  # of a mark: its number, as 64 bits without sign
    entered_ns: int  # wall clock of the rank
    group: int  # place in the table of groups
    signature: int  # id of a text; of a mark: what it says
    site: int  # id of a text
    thread: int  # slot in the table of threads
    peer: int  # of a send or receive, else the root; of a mark: its kind
    iteration: int
    flags: int
    uid: int  # low half of the group's
    left_ns: int  # 0 while it is not complete
    outcome: int
    check: int

    @property
    def is_mark(self) -> bool:
        """True where it is no operation."""
        return bool(self.flags & fmt.MARK)

    @property
    def in_group(self) -> bool:
        """True for an operation of a group, one that the group table does not list too."""
        return self.group != fmt.NO_GROUP or bool(self.uid)

    @property
    def closed(self) -> bool:
        """True where it was written to its end: the last word repeats the serial number."""
        return self.check == self.serial & 0xFFFFFFFF


def record_at(data: bytes, at: int) -> Record:
    """The record that begins at this byte."""
    return Record._make(fmt.RECORD.unpack_from(data, at))


class ThreadRow(NamedTuple):
    """A slot of the table of threads."""

    tid: int  # 0 where the slot is free
    last: int  # serial number of its last record
    waited: int  # serial number of the operation whose handle it waits for, or 0
    since_ns: int  # when that wait began
    name: bytes  # up to its first zero byte

    @property
    def text(self) -> str:
        """Its name."""
        return self.name.split(b"\0")[0].decode("utf-8", "replace")


def thread_at(data: bytes, at: int) -> ThreadRow:
    """The row that begins at this byte."""
    return ThreadRow._make(fmt.THREAD.unpack_from(data, at))
