"""Reads a rank's ring of Python calls (docs/tracing.md) without the rank's help, also after its
death.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from msgspec import structs

from ..errors import BadInput
from ..files import open_regular
from ..model.calls import CallThread, CallTrace, Event, Function, Kind, State
from ..probe.calls import format as fmt

_STATES: dict[int, State] = {
    fmt.TRACING: "tracing",
    fmt.STOPPED: "stopped",
    fmt.SWITCHED_OFF: "switched_off",
    fmt.WAITING: "waiting",
}
_KINDS: dict[int, Kind] = {
    fmt.CALL: "call",
    fmt.RETURN: "return",
    fmt.EXCEPTION: "exception",
    fmt.OPEN: "open",
    fmt.BEGIN: "begin",
}
_MARGIN = 16  # slots behind the oldest event that may be half overwritten already
_THREADS = (
    16  # of a rank that are read for their last events: the main one, and those that called last
)
_AT_ONCE = 4 << 20  # events
_PART = 65_536  # events that are read at once
_WIDTHS = {
    fmt.H_THREADS: fmt.THREAD.size,
    fmt.H_CODES: fmt.CODE.size,
    fmt.H_TEXTS: 1,
    fmt.H_RING: fmt.EVENT_BYTES,
}
_WINDOW = 65_536  # events that are searched for a thread's last ones


def calls_path(box: str | Path) -> Path:
    """Where the calls of the rank with this box are."""
    return Path(box).with_suffix(fmt.SUFFIX)


class CallsReader:
    """One file of calls, held open: reads what is new without reading all again."""

    def __init__(self, path: str | Path, owners: Collection[int] | None = None) -> None:
        """Open a file; with `owners`, only one of these users' or root's.

        Raises:
            BadInput: no file of calls, one of another version, or one cut short.
            FileNotFoundError: there is none: the rank was never traced.
        """
        self.path = Path(path)
        try:
            self._fd = open_regular(self.path, owners, links=False)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise BadInput(f"{path} cannot be read: {error.strerror}") from error
        try:
            self._head = os.pread(self._fd, fmt.HEADER_BYTES, 0)
            if len(self._head) < fmt.HEADER_BYTES or not self._head.startswith(fmt.MAGIC):
                raise BadInput(f"{path} is not a file of Python calls")
            if self._get(fmt.H_VERSION) != fmt.VERSION:
                raise BadInput(
                    f"{path} was written by another version of hangdoctor (format {self._get(fmt.H_VERSION)})"
                )
            self._ring, self.capacity, _ = struct.unpack_from(
                fmt.H_RING[1], self._head, fmt.H_RING[0]
            )
            if not self.capacity or not self._is_whole():
                raise BadInput(f"{path} is truncated or damaged: its tables reach beyond its end")
        except BaseException:
            os.close(self._fd)
            raise
        self._texts: dict[int, str] = {}
        self._functions: dict[int, Function] = {}

    def _is_whole(self) -> bool:
        """All offsets come from the header: the tables that it describes must be in the file."""
        size = os.fstat(self._fd).st_size
        tables = [(place, *struct.unpack_from(place[1], self._head, place[0])) for place in _WIDTHS]
        inside = all(
            begin + count * width <= size and width == _WIDTHS[place]
            for place, begin, count, width in tables
        )
        return inside

    def close(self) -> None:
        """Close the file; events that were read stay."""
        os.close(self._fd)

    def __enter__(self) -> CallsReader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _get(self, place: tuple[int, str]) -> int:
        number: int = struct.unpack_from(place[1], self._head, place[0])[0]
        return number

    def _header_text(self, place: tuple[int, str]) -> str:
        raw: bytes = struct.unpack_from(place[1], self._head, place[0])[0]
        return raw.split(b"\0")[0].decode("utf-8", "replace")

    def written(self) -> int:
        """Events written so far."""
        number: int = struct.unpack("<Q", os.pread(self._fd, 8, fmt.H_HEAD[0]))[0]
        return number

    # ----------------------------------------------------------------- reading

    def summary(self) -> CallTrace:
        """What the header says, without events."""
        head = os.pread(self._fd, fmt.HEADER_BYTES, 0)
        if (
            head[fmt.H_THREADS[0] : fmt.H_TEXTS_USED[0]]
            != self._head[fmt.H_THREADS[0] : fmt.H_TEXTS_USED[0]]
        ):
            raise BadInput(f"{self.path} is damaged: its tables have moved")
        self._head = head
        names = [
            [n for n in self._header_text(p).split(",") if n]
            for p in (fmt.H_FOLLOW, fmt.H_IGNORE, fmt.H_UNSEEN, fmt.H_OFFERED)
        ]
        return CallTrace(
            rank=self._get(fmt.H_RANK),
            pid=self._get(fmt.H_PID),
            state=_STATES.get(self._get(fmt.H_STATE), "stopped"),
            path=str(self.path),
            python=self._get(fmt.H_VARIANT) == fmt.PYTHON,
            monitoring=self._get(fmt.H_MEANS) == fmt.MONITORING,
            follow=names[0],
            ignore=names[1],
            unseen=names[2],
            offered=names[3],
            from_iteration=self._get(fmt.H_FROM_ITERATION),
            request=self._get(fmt.H_REQUEST),
            began_s=self._get(fmt.H_BEGAN_WALL) / 1e9,
            note=self._header_text(fmt.H_NOTE),
            written=self._get(fmt.H_HEAD),
            capacity=self.capacity,
            read_s=time.time(),
        )

    def read(self, last: int | None = None, since: int | None = None) -> CallTrace:
        """All events that the ring holds, or the `last` so many, or those from serial number
        `since` on.
        """
        trace = self.summary()
        first = max(0, trace.written - self.capacity) if since is None else since
        if last is not None:
            first = max(first, trace.written - last)
        return self._filled(trace, self._events(first, trace.written, trace))

    def read_oldest(self) -> CallTrace:
        """The oldest event that the ring is sure to hold."""
        trace = self.summary()
        first = max(0, trace.written - self.capacity + 2 * _MARGIN)
        return self._filled(trace, self._events(first, min(first + 1, trace.written), trace))

    def read_last(self, each: int) -> CallTrace:
        """The last `each` events of every thread, as far as they are near the end of the ring or of
        the thread.

        A thread that hangs wrote its last event long before others that go on: its entry says where
        to look.
        """
        trace = self.summary()
        found: dict[int, tuple[int, int, int, int]] = {}
        table = self._thread_table()
        recent = sorted(
            (i for i in table if table[i][2] > table[i][1]),
            key=lambda i: (table[i][0] != trace.pid, -table[i][2]),
        )
        for index in recent[:_THREADS]:
            _, since, last = table[index]
            ends = self._events(max(since, last - min(each * 8, _WINDOW)), last, trace)
            own = [(s, e) for s, e in ends if e[2] == index]
            found |= dict(own[-each:])
        latest = self._events(max(0, trace.written - each), trace.written, trace)
        begins = {s for s, e in latest if e[3] == fmt.BEGIN}
        if begins:
            found = {s: e for s, e in found.items() if e[3] != fmt.BEGIN or s in begins}
        return self._filled(trace, sorted(found.items()))

    def _thread_table(self) -> dict[int, tuple[int, int, int]]:
        """Index -> (kernel's thread id, serial of its first event, serial of its last event + 1)."""
        begin, _, width = struct.unpack_from(fmt.H_THREADS[1], self._head, fmt.H_THREADS[0])
        count = min(self._get(fmt.H_THREADS_USED), fmt.THREADS)
        data = os.pread(self._fd, count * width, begin)
        return {i: fmt.THREAD.unpack_from(data, i * width)[:3] for i in range(len(data) // width)}

    def _events(
        self, first: int, end: int, trace: CallTrace
    ) -> list[tuple[int, tuple[int, int, int, int]]]:
        """(serial, (time, code, thread, kind)) from `first` to before `end`; what was overwritten
        meanwhile is left out.
        """
        first = max(first, end - self.capacity, 0)
        events: list[tuple[int, tuple[int, int, int, int]]] = []
        parts: Iterable[tuple[int, bytes]] = self._slots(first, end)
        if end - first <= _AT_ONCE:
            parts = list(
                parts
            )  # read before any is looked at: the rank writes faster than that goes
        oldest = self._sure()
        for begin, data in parts:
            if end - first > _AT_ONCE:
                oldest = self._sure()  # after the reading: the rank writes on meanwhile
                events = events if oldest <= begin else []  # no gap
            for serial, (at, code, thread, kind, lap) in enumerate(
                fmt.EVENT.iter_unpack(data), start=begin
            ):
                if serial < oldest:
                    continue
                if kind not in _KINDS or lap != serial // self.capacity & 0xFF:
                    trace.torn += 1
                    continue
                events.append((serial, (at, code, thread, kind)))
        return events

    def _sure(self) -> int:
        """The oldest event that is not being overwritten."""
        sure: int = self.written() - self.capacity + _MARGIN
        return max(0, sure)

    def _slots(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """(serial of the first, bytes) of a run of events, which may go round the ring's end, in
        parts: a ring may be gigabytes of nothing.
        """
        at = first
        while at < end:
            slot = at % self.capacity
            count = min(end - at, self.capacity - slot, _PART)
            data = os.pread(self._fd, count * fmt.EVENT_BYTES, self._ring + slot * fmt.EVENT_BYTES)
            yield at, data[: len(data) // fmt.EVENT_BYTES * fmt.EVENT_BYTES]
            if len(data) < count * fmt.EVENT_BYTES:
                return
            at += count

    # ----------------------------------------------------------------- names

    def _filled(
        self, trace: CallTrace, events: list[tuple[int, tuple[int, int, int, int]]]
    ) -> CallTrace:
        """The trace with these events, and with the names that they need."""
        offset = self._get(fmt.H_NOW_WALL) - self._get(fmt.H_NOW_MONO)
        base = events[0][1][0] if events else 0
        table, functions, threads = (
            self._thread_table(),
            dict[int, int](),
            dict[tuple[int, bool], int](),
        )
        for serial, (at, code, thread, kind) in events:
            if code not in functions:
                functions[code] = len(trace.functions)
                trace.functions.append(self._function(code))
            own = (
                serial >= table.get(thread, (0, 0, 0))[1]
            )  # else of a thread whose entry has passed on
            if (thread, own) not in threads:
                threads[thread, own] = len(trace.threads)
                trace.threads.append(
                    self._thread(thread) if own else CallThread(0, "a thread that ended")
                )
            trace.events.append(
                Event(at - base, _KINDS[kind], functions[code], threads[thread, own])
            )
        trace.base_ns = base + offset if events else 0
        return trace

    def _thread(self, index: int) -> CallThread:
        begin, _, width = struct.unpack_from(fmt.H_THREADS[1], self._head, fmt.H_THREADS[0])
        data = os.pread(self._fd, width, begin + index * width)
        if len(data) < width:
            return CallThread(0)
        tid, _, _, _, name = fmt.THREAD.unpack(data)
        return CallThread(tid, name.split(b"\0")[0].decode("utf-8", "replace"))

    def _function(self, code: int) -> Function:
        known = self._functions.get(code)
        if known is not None:
            return known
        begin, count, width = struct.unpack_from(fmt.H_CODES[1], self._head, fmt.H_CODES[0])
        data = os.pread(self._fd, width, begin + code * width) if code < count else b""
        if len(data) < width:
            return Function("?", "?", 0)
        file, name, line, module = fmt.CODE.unpack(data)
        function = Function(
            self._text(name) or "?", self._text(file) or "?", line, self._text(module)
        )
        if function.name != "?":
            self._functions[code] = function
        return function

    def _text(self, number: int) -> str:
        """A text by its id; texts are only ever appended, so they can be kept."""
        known = self._texts.get(number)
        if known is not None or not number:
            return known or ""
        begin, room, _ = struct.unpack_from(fmt.H_TEXTS[1], self._head, fmt.H_TEXTS[0])
        at = number * fmt.TEXT_UNIT
        data = os.pread(self._fd, 4096, begin + at) if at < room else b""
        if len(data) < fmt.TEXT_HEAD.size:
            return ""
        (length,) = fmt.TEXT_HEAD.unpack_from(data, 0)
        text = data[fmt.TEXT_HEAD.size : fmt.TEXT_HEAD.size + length].decode("utf-8", "replace")
        self._texts[number] = text
        return text


def read_calls(path: str | Path, last: int | None = None) -> CallTrace:
    """The calls in one file: all that the ring holds, or the last N.

    Raises:
        BadInput: no file of calls.
        FileNotFoundError: the rank was never traced.
    """
    with CallsReader(path) as reader:
        return reader.read(last)


def last_calls(
    path: str | Path, each: int, owners: Collection[int] | None = None
) -> CallTrace | None:
    """The last events of every thread; None where the rank was never traced.

    `owners` as of `CallsReader`.

    Raises:
        BadInput: no file of calls.
    """
    try:
        with CallsReader(path, owners) as reader:
            return reader.read_last(each)
    except FileNotFoundError:
        return None


def without_path(trace: CallTrace) -> CallTrace:
    """As a capture keeps it: a bundle is read elsewhere."""
    return structs.replace(trace, path="")
