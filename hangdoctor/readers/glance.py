"""A glance at a black box: where its rank is now, in a few small reads, for who looks every second.

`blackbox.read_box` copies and parses the whole file; this reads the header, the thread table and the record of each
thread's last operation, some 8 KiB. Torn records are passed over: the next glance comes soon.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from msgspec import Struct

from ..errors import BadInput
from ..probe import format as fmt

_HEAD = fmt.HEADER_BYTES + fmt.THREADS * fmt.THREAD.size
_STATES = {fmt.RUNNING: "running", fmt.FINISHED: "finished", fmt.SWITCHED_OFF: "switched_off", fmt.CRASHED: "crashed"}


class Glance(Struct):
    """One rank at one moment. `event_s` is the wall clock of its last progress, 0 before the first."""

    pid: int
    rank: int
    world_size: int
    state: str
    iteration: int
    micro_batch: int
    phase: str
    event_s: float
    op: str = ""
    seq: int = 0
    inside: bool = False


class BoxWatch:
    """One box that stays open. `removed` once its rank has taken it away: the end in good order."""

    def __init__(self, path: str | Path) -> None:
        """Raises BadInput: it cannot be opened, or is no box of this version."""
        self.path = str(path)
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror}") from error
        head = os.pread(self._fd, _HEAD, 0)
        if len(head) < _HEAD or not head.startswith(fmt.MAGIC) or _number(head, fmt.H_VERSION) != fmt.VERSION:
            self.close()
            raise BadInput(f"{path}: no black box of version {fmt.VERSION}")
        self._texts: dict[int, str] = {}

    @property
    def removed(self) -> bool:
        return os.fstat(self._fd).st_nlink == 0

    def close(self) -> None:
        os.close(self._fd)

    def read(self) -> Glance:
        head = os.pread(self._fd, _HEAD, 0)
        glance = Glance(
            _number(head, fmt.H_PID), _number(head, fmt.H_RANK), _number(head, fmt.H_WORLD),
            _STATES.get(_number(head, fmt.H_STATE), "running"), _number(head, fmt.H_ITERATION),
            _number(head, fmt.H_MICRO_BATCH), self._text(head, _number(head, fmt.H_PHASE)),
            max(_number(head, fmt.H_ITERATION_SINCE), _number(head, fmt.H_PHASE_SINCE)) / 1e9,
        )  # fmt: skip
        self._operations(head, glance)
        return glance

    def _operations(self, head: bytes, glance: Glance) -> None:
        begin, slots, width = struct.unpack_from(fmt.H_THREADS[1], head, fmt.H_THREADS[0])
        newest = 0
        for i in range(min(slots, fmt.THREADS)):
            if begin + (i + 1) * width > len(head):
                break
            tid, last, waited, since, _ = fmt.THREAD.unpack_from(head, begin + i * width)
            if not tid:
                continue
            record = self._record(head, waited or last)
            if record is None:
                continue
            entered, left, outcome = record[2], record[11], record[12]
            glance.event_s = max(glance.event_s, entered / 1e9, left / 1e9, since / 1e9 if waited else 0.0)
            inside = bool(waited) or (not left and outcome != fmt.STARTED)
            # The thread that is inside an operation says where the rank is; among equals the newest.
            if (inside, record[0]) > (glance.inside, newest):
                newest, glance.inside = record[0], inside
                glance.seq, glance.op = record[1], self._name(head, record)

    def _record(self, head: bytes, serial: int) -> tuple[int, ...] | None:
        begin, slots, width = struct.unpack_from(fmt.H_RING[1], head, fmt.H_RING[0])
        if not serial or not slots:
            return None
        data = os.pread(self._fd, fmt.RECORD_BYTES, begin + serial % slots * width)
        if len(data) < fmt.RECORD_BYTES:
            return None
        record = fmt.RECORD.unpack_from(data, 0)
        if record[0] != serial or record[13] != serial & 0xFFFFFFFF:
            return None
        self._inline = data[fmt.INLINE_OFFSET :]
        return record

    def _name(self, head: bytes, record: tuple[int, ...]) -> str:
        if record[9] & fmt.INLINE_SIGNATURE:
            text = self._inline.split(b"\0")[0].decode("utf-8", "replace")
        else:
            text = self._text(head, record[4])
        return text.split("\t")[0][:80]

    def _text(self, head: bytes, number: int) -> str:
        """A text by its id; texts are only ever appended, so they can be kept."""
        known = self._texts.get(number)
        if known is not None or not number:
            return known or ""
        begin, room, _ = struct.unpack_from(fmt.H_STRINGS[1], head, fmt.H_STRINGS[0])
        at = number * fmt.STRING_UNIT
        data = os.pread(self._fd, 400, begin + at) if at < room else b""
        if len(data) < fmt.STRING_HEAD.size:
            return ""
        (length,) = fmt.STRING_HEAD.unpack_from(data, 0)
        text = data[fmt.STRING_HEAD.size : fmt.STRING_HEAD.size + min(length, 200)].decode("utf-8", "replace")
        if len(self._texts) < 10_000:
            self._texts[number] = text
        return text


def _number(data: bytes, place: tuple[int, str]) -> int:
    number: int = struct.unpack_from(place[1], data, place[0])[0]
    return number
