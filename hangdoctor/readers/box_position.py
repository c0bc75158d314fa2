"""A sample of a black box: where its rank is now, in a few small reads, made every second.

`blackbox.read_box` copies and parses the whole file; this reads the header, the thread table and the record of each
thread's last operation, some 8 KiB. Torn records are passed over: the next glance comes soon.
"""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

from msgspec import Struct

from ..errors import BadInput
from ..files import open_regular
from ..model.operations import STORE
from ..probe import format as fmt
from .training_threads import Flow, Record, in_group

_HEAD = fmt.HEADER_BYTES + fmt.THREADS * fmt.THREAD.size
_TABLES = ((fmt.H_THREADS, fmt.THREAD.size), (fmt.H_STRINGS, 1), (fmt.H_RING, fmt.RECORD_BYTES))
_WIDEST = 4096  # bytes of one entry
_SAMPLE = 64  # newest records, for the share of waiting
_STORE_CALL = "store_wait"  # anyone may poll a store: that is not progress of the training
_STATES = {
    fmt.RUNNING: "running",
    fmt.FINISHED: "finished",
    fmt.SWITCHED_OFF: "switched_off",
    fmt.CRASHED: "crashed",
}


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
    pending: bool = False  # entered without waiting, and not known to be complete: its device or its peers are at work
    runs_ahead: bool = False  # what it has entered it may not have reached on its device
    timeout_s: float = 0.0  # the shortest of its process groups, 0 where it is not known


class BoxWatch:
    """One box that stays open. `removed` once its rank has removed it, at a clean end."""

    def __init__(self, path: str | Path) -> None:
        """Raises BadInput: it cannot be opened, or is not a box of this version."""
        self.path = str(path)
        try:
            self._fd = open_regular(path, links=False)
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror}") from error
        head = os.pread(self._fd, _HEAD, 0)
        if (
            len(head) < _HEAD
            or not head.startswith(fmt.MAGIC)
            or _number(head, fmt.H_VERSION) not in fmt.READABLE
        ):
            self.close()
            raise BadInput(
                f"{path}: not a black box of version {' or '.join(map(str, fmt.READABLE))}"
            )
        try:
            self._check(head)
        except OSError as error:
            self.close()
            raise BadInput(f"{path}: {error.strerror}") from error
        self._texts: dict[int, str] = {}
        self._head = head
        self._newest = 0  # serial number
        self._last: dict[int, float] = {}  # slot of a thread -> its last progress
        self._set_up: frozenset[int] = frozenset()  # signatures
        self.flow = Flow()
        self.see_threads(head)

    @property
    def removed(self) -> bool:
        return os.fstat(self._fd).st_nlink == 0

    def close(self) -> None:
        os.close(self._fd)

    def _check(self, head: bytes) -> None:
        """Raises OSError: the box was cut, or a table reaches beyond its end, and all offsets are taken from there."""
        size = os.fstat(self._fd).st_size
        for place, least in _TABLES:
            begin, entries, width = struct.unpack_from(place[1], head, place[0])
            if len(head) < _HEAD or begin + entries * width > size or not least <= width <= _WIDEST:
                raise OSError(errno.EIO, "its tables reach beyond its end")

    def read(self) -> Glance:
        """Where the rank is now.

        Raises:
            OSError: the box cannot be read any more.
        """
        head = os.pread(self._fd, _HEAD, 0)
        self._check(head)
        glance = Glance(
            _number(head, fmt.H_PID), _number(head, fmt.H_RANK), _number(head, fmt.H_WORLD),
            _STATES.get(_number(head, fmt.H_STATE), "running"), iteration_of(head),
            _number(head, fmt.H_MICRO_BATCH), self._text(head, _number(head, fmt.H_PHASE)),
            max(_number(head, place) for place in (fmt.H_ITERATION_SINCE, fmt.H_PHASE_SINCE, fmt.H_STEP_SINCE)) / 1e9,
            runs_ahead=bool(_number(head, fmt.H_FLAGS) & fmt.RUNS_AHEAD), timeout_s=_number(head, fmt.H_TIMEOUT_MS) / 1e3,
        )  # fmt: skip
        self._operations(head, glance)
        self._head = head
        return glance

    def age_s(self, event_s: float, wall: float, mono: float) -> float:
        """Seconds since an event of this box's rank, by wall and monotonic clock of its host; before its first the box's own making.

        Either clock shows it: the wall clock, and the monotonic one by what lay between the two when the box was made. They differ
        where someone has set the wall clock since: then the smaller age, so that no stall comes from it.
        """
        made_wall, made_mono = (
            _number(self._head, place) / 1e9 for place in (fmt.H_CREATED_WALL, fmt.H_CREATED_MONO)
        )
        event_s = event_s or made_wall
        return max(0.0, min(wall - event_s, mono - made_mono - (event_s - made_wall)))

    def waiting_share(self, since_ns: int, now_ns: int) -> float:
        """Of the time between, the share that the rank spent inside operations that block; -1 if unknown.

        By the times of its own clock and the newest records: where there were more, the share of the time that they cover.
        A backend that runs ahead does not block where the rank enters, so that nothing can be told.
        """
        head, newest = self._head, self._newest
        begin, slots, width = struct.unpack_from(fmt.H_RING[1], head, fmt.H_RING[0])
        if not newest or not slots or _number(head, fmt.H_FLAGS) & fmt.RUNS_AHEAD:
            return -1.0
        first = max(1, newest - _SAMPLE + 1)
        if first // slots != newest // slots:
            first = (
                newest // slots * slots or 1
            )  # the ring's end lies between: what is behind it will do
        data = os.pread(self._fd, (newest - first + 1) * width, begin + first % slots * width)
        waited, oldest = 0, now_ns
        ends = range(0, len(data) - fmt.RECORD_BYTES + 1, width)
        records = [fmt.RECORD.unpack_from(data, at) for at in ends]
        records = [r for r in records if r[0] and r[13] == r[0] & 0xFFFFFFFF]
        self.learn(records)
        for record in records:
            entered, flags, left = record[2], record[9], record[11]
            waits = entered and in_group(record) and not flags & fmt.ASYNC
            if not waits or not self.flow.has(record[6]):
                continue
            oldest = min(oldest, entered)
            waited += max(0, min(left or now_ns, now_ns) - max(entered, since_ns))
        since_ns = max(since_ns, oldest) if newest - first + 1 == _SAMPLE else since_ns
        return min(1.0, waited / (now_ns - since_ns)) if now_ns > since_ns else -1.0

    # ----------------------------------------------------------------- parts, also for `history`

    @property
    def fd(self) -> int:
        """The open file."""
        return self._fd

    @property
    def steps(self) -> int:
        """Of the job's optimizers, as of the last read."""
        return _number(self._head, fmt.H_STEPS)

    @property
    def phase(self) -> str:
        """The phase of the last read."""
        return self._text(self._head, _number(self._head, fmt.H_PHASE))

    def region(self, place: tuple[int, str]) -> tuple[int, int, int]:
        """Where a region begins, its entries, and the bytes of one."""
        begin, entries, width = struct.unpack_from(place[1], self._head, place[0])
        return begin, entries, width

    def text(self, number: int) -> str:
        """A text of the box by its id."""
        return self._text(self._head, number)

    def learn(self, records: list[Record]) -> None:
        """Learn from these records which threads train."""
        named = {r[4] for r in records if in_group(r) and not r[9] & fmt.MARK}
        fresh = (n for n in named - self._set_up if self.text(n).split("\t")[0] in STORE)
        self._set_up = self._set_up.union(fresh)
        self.flow.learn(records, self._set_up)

    def is_store_call(self, record: Record) -> bool:
        """Whether it is a wait for a store's key."""
        return not in_group(record) and self.text(record[4]).startswith(_STORE_CALL)

    def see_threads(self, head: bytes) -> list[tuple[int, int, int, int]]:
        """(thread id, last serial, serial waited for, since when) of each slot of the table."""
        begin, slots, width = struct.unpack_from(fmt.H_THREADS[1], head, fmt.H_THREADS[0])
        rows, names = [], []
        for i in range(min(slots, fmt.THREADS)):
            if begin + (i + 1) * width > len(head):
                break
            tid, last, waited, since, name = fmt.THREAD.unpack_from(head, begin + i * width)
            if not tid:
                break  # slots are given in order
            rows.append((tid, last, waited, since))
            names.append((tid, name.rstrip(b"\0")))
        self.flow.see(_number(head, fmt.H_PID), names)
        return rows

    # ----------------------------------------------------------------- one read

    def _operations(self, head: bytes, glance: Glance) -> None:
        best = (False, False, 0)
        for i, (_, last, waited, since) in enumerate(self.see_threads(head)):
            self._newest = max(self._newest, last)
            record = self._record(head, waited or last)
            if record is None:
                continue
            self.learn([record])
            left, outcome, trains = record[11], record[12], self.flow.has(i)
            inside = bool(waited) or (not left and outcome != fmt.STARTED)
            if trains and not self.is_store_call(record):
                self._last[i] = max(record[2], left, since if waited else 0) / 1e9
                glance.pending = glance.pending or (not left and outcome == fmt.STARTED)
            # The thread that trains and is inside an operation says where the rank is.
            if (trains, inside, record[0]) > best:
                best = (trains, inside, record[0])
                glance.inside, glance.seq, glance.op = inside, record[1], self._name(head, record)
        told = [at for i, at in self._last.items() if self.flow.has(i)]
        glance.event_s = max([glance.event_s, *told])

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
        self._inline = data[fmt.INLINE_OFFSET : fmt.INLINE_OFFSET + fmt.INLINE_BYTES]
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
        text = data[fmt.STRING_HEAD.size : fmt.STRING_HEAD.size + min(length, 200)].decode(
            "utf-8", "replace"
        )
        if len(self._texts) < 10_000:
            self._texts[number] = text
        return text


def iteration_of(head: bytes) -> int:
    """As the job says it, else the steps that its optimizers have made; -1 where neither is known."""
    told, steps = _number(head, fmt.H_ITERATION), _number(head, fmt.H_STEPS)
    return told if told >= 0 or not steps else steps


def _number(data: bytes, place: tuple[int, str]) -> int:
    number: int = struct.unpack_from(place[1], data, place[0])[0]
    return number
