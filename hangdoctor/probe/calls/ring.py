"""The writer of one file of calls: fixed size, mapped into the rank, readable by others whatever
becomes of the rank.
"""

from __future__ import annotations

import _thread
import itertools
import os
import struct
import sys
import time
from pathlib import Path
from types import CodeType
from typing import Any

from ..folder import discard, remove_own, write_own
from ..identity import boot_id, start_ticks
from ..own_threads import map_file, reserve
from . import format as fmt


class Ring:
    """The file's tables, and `put`, the pure-Python writer of events.

    All writing happens under the interpreter's lock; while the extension is attached, it writes the
    events instead.
    """

    def __init__(self, box: Path, size: int, rank: int, world: int) -> None:
        """Make the file beside a box.

        Raises:
            OSError: no room, no right.
        """
        self.pid = os.getpid()
        self.path = box.with_suffix(fmt.SUFFIX)
        size = max(fmt.MIN_BYTES, min(size, 1 << 32)) & ~4095
        staging = self.path.with_name(f".{self.path.name}")
        discard(staging, fmt.MAGIC)
        fd = os.open(
            staging, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            reserve(fd, size)
            self._file = os.fstat(fd)
            self.map = map_file(fd, size)
        except BaseException:
            staging.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)
        self.words = memoryview(self.map).cast("Q")
        self.regions = fmt.regions(size)
        self._texts: dict[str, int] = {"": 0}
        self._texts_used = fmt.TEXT_UNIT  # id 0 is the empty text
        self._codes: dict[tuple[str, str, int], int] = {}
        self._threads: dict[int, int] = {}  # kernel's thread id -> index
        self.owners = [
            0
        ] * fmt.THREADS  # of the entries of the thread table, by the kernel's thread id
        self._next_thread = 0
        begin, self._slots, _ = self.regions["ring"]
        self._first, self._thread_words = begin // 8, fmt.HEADER_BYTES // 8
        self._head = fmt.H_HEAD[0] // 8
        self._serials = itertools.count()
        self._making = _thread.allocate_lock()
        self._write_header(size, rank, world)
        discard(self.path, fmt.MAGIC)
        os.link(
            staging, self.path
        )  # whoever finds it finds it whole; what is not ours is not replaced
        staging.unlink()

    def _write_header(self, size: int, rank: int, world: int) -> None:
        wall, mono = time.time_ns(), time.monotonic_ns()
        for place, value in (
            (fmt.H_VERSION, fmt.VERSION),
            (fmt.H_HEADER_BYTES, fmt.HEADER_BYTES),
            (fmt.H_FILE_BYTES, size),
            (fmt.H_PID, self.pid),
            (fmt.H_RANK, rank),
            (fmt.H_WORLD, world),
            (fmt.H_STARTED_TICKS, start_ticks()),
            (fmt.H_BOOT_ID, boot_id()),
            (fmt.H_MADE_WALL, wall),
            (fmt.H_MADE_MONO, mono),
            (fmt.H_NOW_WALL, wall),
            (fmt.H_NOW_MONO, mono),
            (fmt.H_STATE, fmt.STOPPED),
            (fmt.H_FROM_ITERATION, -1),
            (fmt.H_TEXTS_USED, self._texts_used),
        ):
            self.header(place, value)
        for name in ("threads", "codes", "texts", "ring"):
            offset, how = getattr(fmt, f"H_{name.upper()}")
            struct.pack_into(how, self.map, offset, *self.regions[name])
        self.code_id("?", "?", 0, "")  # NO_CODE
        self.header(
            fmt.H_MAGIC, fmt.MAGIC
        )  # last: a reader never takes half a header for a whole one

    def header(self, place: tuple[int, str], value: Any) -> None:
        """A value into the header."""
        struct.pack_into(place[1], self.map, place[0], value)

    def header_text(self, place: tuple[int, str], text: str) -> None:
        """A text into the header, cut to the room that it has there."""
        room = struct.calcsize(place[1])
        self.header(place, text.encode("utf-8", "replace")[: room - 1])

    def anchor(self) -> None:
        """The two clocks side by side, as they are now: how a reader turns one into the other."""
        self.header(fmt.H_NOW_MONO, time.monotonic_ns())
        self.header(fmt.H_NOW_WALL, time.time_ns())

    # ----------------------------------------------------------------- names

    def _text(self, text: str) -> int:
        known = self._texts.get(text)
        if known is not None:
            return known
        raw = text.encode("utf-8", "replace")[:4000]
        begin, room, _ = self.regions["texts"]
        at = self._texts_used
        need = fmt.TEXT_HEAD.size + len(raw)
        need += -need % fmt.TEXT_UNIT
        if at + need > room:
            return 0
        self.map[begin + at + fmt.TEXT_HEAD.size : begin + at + fmt.TEXT_HEAD.size + len(raw)] = raw
        fmt.TEXT_HEAD.pack_into(self.map, begin + at, len(raw))
        self._texts_used = at + need
        self.header(fmt.H_TEXTS_USED, self._texts_used)
        self._texts[text] = at // fmt.TEXT_UNIT
        return at // fmt.TEXT_UNIT

    def code_id(self, file: str, name: str, line: int, module: str) -> int:
        """The id of a place in the program; equal places share one, so that code made in a loop
        does not fill the table.
        """
        key = (file, name, line)
        known = self._codes.get(key)
        if known is not None:
            return known
        begin, room, width = self.regions["codes"]
        index = len(self._codes)
        if index >= room:
            return fmt.NO_CODE
        entry = self._text(file), self._text(name), line, self._text(module)
        fmt.CODE.pack_into(self.map, begin + index * width, *entry)
        self._codes[key] = index
        self.header(fmt.H_CODES_USED, index + 1)
        return index

    def intern(self, code: CodeType, module: str) -> int:
        """The number of a function in the table of names."""
        # co_qualname exists since Python 3.11
        name = getattr(code, "co_qualname", code.co_name)
        with self._making:
            return self.code_id(code.co_filename, name, code.co_firstlineno, module)

    def thread(self, tid: int = 0, name: str = "") -> int:
        """Index of a thread (the current one without `tid`) in the table; when it is full the
        oldest entry passes on.
        """
        if not tid:
            tid, name = _thread.get_native_id(), _name()
        known = self._threads.get(tid)
        if known is not None:
            return known
        with self._making:
            return self._add_thread(tid, name)

    def _add_thread(self, tid: int, name: str) -> int:
        index = self._next_thread % fmt.THREADS
        if self._next_thread >= fmt.THREADS:
            self._threads = {t: i for t, i in self._threads.items() if i != index}
        self._next_thread += 1
        head = self.words[self._head]
        raw = name.encode("utf-8", "replace")[:31]
        entry = tid, head, 0, 0, raw
        fmt.THREAD.pack_into(self.map, fmt.HEADER_BYTES + index * fmt.THREAD.size, *entry)
        self._threads[tid], self.owners[index] = index, tid
        self.header(fmt.H_THREADS_USED, min(self._next_thread, fmt.THREADS))
        return index

    # ----------------------------------------------------------------- events

    def resume(self) -> None:
        """Go on after what is written: the extension counts by itself."""
        self._serials = itertools.count(self.words[self._head])

    def put(self, code: int, thread: int, kind: int) -> None:
        """Write one event: its two words, the thread's last, and the count at the end, which makes
        it valid.
        """
        words = self.words
        serial = next(
            self._serials
        )  # one step: another thread may write between any two lines of this one
        lap, slot = divmod(serial, self._slots)
        at = self._first + 2 * slot
        words[at] = time.monotonic_ns()
        words[at + 1] = code | thread << 32 | kind << 48 | (lap & 0xFF) << 56
        words[self._thread_words + 8 * thread + 2] = serial + 1
        words[self._head] = serial + 1

    # ----------------------------------------------------------------- end

    def note(self, text: str, state: int) -> None:
        """Say once why nothing more is written; through the file, because the mapping may be what
        is broken.
        """
        raw = text.encode("utf-8", "replace")[:511]
        write_own(
            self.path,
            self._file,
            [(fmt.H_NOTE[0], raw), (fmt.H_STATE[0], struct.pack("<I", state))],
        )

    def remove(self) -> None:
        """Take the file away, unless this process is a fork of its writer."""
        if os.getpid() == self.pid:
            remove_own(self.path, self._file)


def _name() -> str:
    """The current thread's name: the job's own for it, else the kernel's (autograd's threads have
    only that).
    """
    threading = sys.modules.get("threading")
    thread = getattr(threading, "_active", {}).get(_thread.get_ident())
    if thread is not None:
        return str(thread.name)
    try:
        return (
            Path(f"/proc/self/task/{_thread.get_native_id()}/comm")
            .read_text("utf-8", "replace")
            .strip()
        )
    except OSError:
        return ""
