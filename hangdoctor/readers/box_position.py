"""A sample of a black box: where its rank is now, in a few small reads, made every second.

`blackbox.read_box` copies and parses the whole file; this reads the header, the thread table and
the record of each thread's last operation, some 8 KiB. Torn records are passed over: the next
glance comes soon.
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
from .box_events import TrainingEvent, read_new
from .box_header import iteration_of, number, runs_ahead, state_of
from .box_records import Record, ThreadRow, record_at, thread_at
from .training_threads import Flow

_HEAD = fmt.HEADER_BYTES + fmt.THREADS * fmt.THREAD.size
_TABLES = ((fmt.H_THREADS, fmt.THREAD.size), (fmt.H_STRINGS, 1), (fmt.H_RING, fmt.RECORD_BYTES))
_WIDEST = 4096  # bytes of one entry
_SAMPLE = 64  # newest records, for the share of waiting
_STORE_CALL = "store_wait"  # anyone may poll a store: that is not progress of the training
_NAME = 80  # characters of an operation's name
_TEXT = 200  # bytes of a text
_TEXTS = 10_000  # that are kept


class Glance(Struct):
    """One rank at one moment.

    `event_s` is the wall clock of its last progress, 0 before the first.
    """

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
    # Entered without waiting, and not known to be complete: its device or its peers are at work.
    pending: bool = False
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
        whole = len(head) == _HEAD and head.startswith(fmt.MAGIC)
        if not whole or number(head, fmt.H_VERSION) not in fmt.READABLE:
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
        """True once its rank has taken it away."""
        return os.fstat(self._fd).st_nlink == 0

    def close(self) -> None:
        """Close the file; nothing can be read after it."""
        os.close(self._fd)

    def _check(self, head: bytes) -> None:
        """Raises OSError: the box was cut, or a table reaches beyond its end, and all offsets are
        taken from there.
        """
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
        changes = (fmt.H_ITERATION_SINCE, fmt.H_PHASE_SINCE, fmt.H_STEP_SINCE)
        glance = Glance(
            pid=number(head, fmt.H_PID),
            rank=number(head, fmt.H_RANK),
            world_size=number(head, fmt.H_WORLD),
            state=state_of(head),
            iteration=iteration_of(head),
            micro_batch=number(head, fmt.H_MICRO_BATCH),
            phase=self._text(head, number(head, fmt.H_PHASE)),
            event_s=max(number(head, place) for place in changes) / 1e9,
            runs_ahead=runs_ahead(head),
            timeout_s=number(head, fmt.H_TIMEOUT_MS) / 1e3,
        )
        self._operations(head, glance)
        self._head = head
        return glance

    def events(self, after: int) -> list[TrainingEvent]:
        """What the training has said since its event number `after`.

        Raises:
            OSError: the box cannot be read any more.
        """
        return read_new(self._fd, os.pread(self._fd, fmt.HEADER_BYTES, 0), after)

    @property
    def made_ns(self) -> int:
        """When the box was made, by its rank's clock: with the rank it names the process."""
        return number(self._head, fmt.H_CREATED_WALL)

    def age_s(self, event_s: float, wall: float, mono: float) -> float:
        """Seconds since an event of this box's rank, by wall and monotonic clock of its host;
        before its first the box's own making.

        Either clock shows it: the wall clock, and the monotonic one by what lay between the two
        when the box was made. They differ where someone has set the wall clock since: then the
        smaller age, so that no stall comes from it.
        """
        made_wall = number(self._head, fmt.H_CREATED_WALL) / 1e9
        made_mono = number(self._head, fmt.H_CREATED_MONO) / 1e9
        event_s = event_s or made_wall
        by_wall = wall - event_s
        by_mono = mono - made_mono - (event_s - made_wall)
        return max(0.0, min(by_wall, by_mono))

    def waiting_share(self, since_ns: int, now_ns: int) -> float:
        """Of the time between, the share that the rank spent inside operations that block; -1 if
        unknown.

        By the times of its own clock and the newest records: where there were more, the share of
        the time that they cover. A backend that runs ahead does not block where the rank enters, so
        that nothing can be told.
        """
        records = [] if runs_ahead(self._head) else self._newest_records()
        if not records:
            return -1.0
        self.learn([record for record in records if record is not None])
        waited, oldest = 0, now_ns
        for record in records:
            if record is None or not self._blocks(record):
                continue
            oldest = min(oldest, record.entered_ns)
            end = min(record.left_ns or now_ns, now_ns)
            waited += max(0, end - max(record.entered_ns, since_ns))
        if len(records) == _SAMPLE:
            since_ns = max(since_ns, oldest)
        return min(1.0, waited / (now_ns - since_ns)) if now_ns > since_ns else -1.0

    def _newest_records(self) -> list[Record | None]:
        """The newest records, None for each that is torn; only those up to the ring's end, where
        that
        lies between: what is behind it will do.
        """
        begin, slots, width = self.region(fmt.H_RING)
        newest = self._newest
        if not newest or not slots:
            return []
        first = max(1, newest - _SAMPLE + 1)
        if first // slots != newest // slots:
            first = newest // slots * slots or 1
        data = os.pread(self._fd, (newest - first + 1) * width, begin + first % slots * width)
        found: list[Record | None] = []
        for n in range(newest - first + 1):
            at = n * width
            record = record_at(data, at) if at + fmt.RECORD_BYTES <= len(data) else None
            whole = record is not None and record.serial and record.closed
            found.append(record if whole else None)
        return found

    def _blocks(self, record: Record) -> bool:
        """Whether the training waited in it."""
        waits = record.entered_ns and record.in_group and not record.flags & fmt.ASYNC
        return bool(waits) and self.flow.has(record.thread)

    # ----------------------------------------------------------------- parts, also for `history`

    @property
    def fd(self) -> int:
        """The open file."""
        return self._fd

    @property
    def steps(self) -> int:
        """Of the job's optimizers, as of the last read."""
        return number(self._head, fmt.H_STEPS)

    @property
    def phase(self) -> str:
        """The phase of the last read."""
        return self._text(self._head, number(self._head, fmt.H_PHASE))

    def region(self, place: tuple[int, str]) -> tuple[int, int, int]:
        """Where a region begins, its entries, and the bytes of one."""
        begin, entries, width = struct.unpack_from(place[1], self._head, place[0])
        return begin, entries, width

    def text(self, number: int) -> str:
        """A text of the box by its id."""
        return self._text(self._head, number)

    def learn(self, records: list[Record]) -> None:
        """Learn from these records which threads train."""
        named = {r.signature for r in records if r.in_group and not r.is_mark}
        fresh = [key for key in named - self._set_up if self.text(key).split("\t")[0] in STORE]
        self._set_up = self._set_up.union(fresh)
        self.flow.learn(records, self._set_up)

    def is_store_call(self, record: Record) -> bool:
        """Whether it is a wait for a store's key."""
        return not record.in_group and self.text(record.signature).startswith(_STORE_CALL)

    def see_threads(self, head: bytes) -> list[ThreadRow]:
        """The rows of the table of threads that are in use."""
        begin, slots, width = struct.unpack_from(fmt.H_THREADS[1], head, fmt.H_THREADS[0])
        rows: list[ThreadRow] = []
        for i in range(min(slots, fmt.THREADS)):
            if begin + (i + 1) * width > len(head):
                break
            row = thread_at(head, begin + i * width)
            if not row.tid:
                break  # slots are given in order
            rows.append(row)
        names = [(row.tid, row.name.rstrip(b"\0")) for row in rows]
        self.flow.see(number(head, fmt.H_PID), names)
        return rows

    # ----------------------------------------------------------------- one read

    def _operations(self, head: bytes, glance: Glance) -> None:
        best = (False, False, 0)
        for i, row in enumerate(self.see_threads(head)):
            self._newest = max(self._newest, row.last)
            record = self._record(head, row.waited or row.last)
            if record is None:
                continue
            self.learn([record])
            trains = self.flow.has(i)
            runs = not record.left_ns and record.outcome == fmt.STARTED
            inside = bool(row.waited) or not (record.left_ns or runs)
            if trains and not self.is_store_call(record):
                since = row.since_ns if row.waited else 0
                self._last[i] = max(record.entered_ns, record.left_ns, since) / 1e9
                glance.pending = glance.pending or runs
            # The thread that trains and is inside an operation says where the rank is.
            if (trains, inside, record.serial) > best:
                best = (trains, inside, record.serial)
                glance.inside, glance.seq = inside, record.seq
                glance.op = self._name(head, record)
        progress = [at for i, at in self._last.items() if self.flow.has(i)]
        glance.event_s = max([glance.event_s, *progress])

    def _record(self, head: bytes, serial: int) -> Record | None:
        begin, slots, width = struct.unpack_from(fmt.H_RING[1], head, fmt.H_RING[0])
        if not serial or not slots:
            return None
        data = os.pread(self._fd, fmt.RECORD_BYTES, begin + serial % slots * width)
        if len(data) < fmt.RECORD_BYTES:
            return None
        record = record_at(data, 0)
        if record.serial != serial or not record.closed:
            return None
        self._inline = data[fmt.INLINE_OFFSET : fmt.INLINE_OFFSET + fmt.INLINE_BYTES]
        return record

    def _name(self, head: bytes, record: Record) -> str:
        if record.flags & fmt.INLINE_SIGNATURE:
            text = self._inline.split(b"\0")[0].decode("utf-8", "replace")
        else:
            text = self._text(head, record.signature)
        return text.split("\t")[0][:_NAME]

    def _text(self, head: bytes, key: int) -> str:
        """A text by its id; texts are only ever appended, so they can be kept."""
        known = self._texts.get(key)
        if known is not None or not key:
            return known or ""
        begin, room, _ = struct.unpack_from(fmt.H_STRINGS[1], head, fmt.H_STRINGS[0])
        at = key * fmt.STRING_UNIT
        data = os.pread(self._fd, 2 * _TEXT, begin + at) if at < room else b""
        if len(data) < fmt.STRING_HEAD.size:
            return ""
        (length,) = fmt.STRING_HEAD.unpack_from(data, 0)
        end = fmt.STRING_HEAD.size + min(length, _TEXT)
        text = data[fmt.STRING_HEAD.size : end].decode("utf-8", "replace")
        if len(self._texts) < _TEXTS:
            self._texts[key] = text
        return text
