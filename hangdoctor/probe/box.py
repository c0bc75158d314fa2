"""The writer of one black box: a file of fixed size, mapped into the rank, never grown and never
read back.

All numbers are written under the interpreter's lock; readers do not lock (see docs/blackbox.md,
"Torn records").
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections import deque
from pathlib import Path
from typing import Any

from . import ending
from . import format as fmt
from .folder import discard, remove_if_empty, remove_own, write_own
from .identity import boot_id, host, process_name, ranks_from, start_ticks
from .own_threads import map_file, reserve
from .record_core import native

_POPULATE = getattr(mmap, "MAP_POPULATE", 0)  # no page fault in the middle of an operation
_GROUP_TEXTS = (
    0.3  # of the table of texts: the rest is for the others, however many groups a job makes
)


class BoxWriter:
    """One mapped file. Numbers of the ring are written by `Recorder` straight into `words`,
    `halves` and `map`.
    """

    def __init__(self, folder: Path, job: str, size: int = fmt.DEFAULT_BYTES) -> None:
        """Make the file for this process.

        Raises:
            OSError: no room, no right, or a read-only place.
        """
        self.pid = os.getpid()
        self.path = folder / f"{host()}-{process_name(self.pid)}{fmt.SUFFIX}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        discard(self.path, fmt.MAGIC)  # of a dead process that had the same pid
        fd = os.open(self.path, flags, 0o600)
        try:
            reserve(fd, size)
            self._file = os.fstat(fd)
            self.map = map_file(fd, size, mmap.MAP_SHARED | _POPULATE)
        except BaseException:
            self.path.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)
        view = memoryview(self.map)
        self.words = view.cast("Q")
        self.halves = view.cast("I")
        self.regions = fmt.regions(size)
        self._ids: dict[bytes, int] = {b"": 0}
        self._strings_used = fmt.STRING_UNIT  # id 0 is the empty string
        self._groups_used = 0
        self._ended: deque[int] = deque()  # entries to be used again, the longest ended first
        self._write_header(job, size)

    def _write_header(self, job: str, size: int) -> None:
        rank, world, local_rank = ranks_from(os.environ)
        wall, mono = time.time_ns(), time.monotonic_ns()
        for place, value in (
            (fmt.H_VERSION, fmt.VERSION),
            (fmt.H_HEADER_BYTES, fmt.HEADER_BYTES),
            (fmt.H_FILE_BYTES, size),
            (fmt.H_PID, self.pid),
            (fmt.H_RANK, rank),
            (fmt.H_WORLD, world),
            (fmt.H_LOCAL_RANK, local_rank),
            (fmt.H_STARTED_TICKS, start_ticks()),
            (fmt.H_BOOT_ID, boot_id()),
            (fmt.H_CREATED_WALL, wall),
            (fmt.H_CREATED_MONO, mono),
            (fmt.H_BEAT_WALL, wall),
            (fmt.H_BEAT_MONO, mono),
            (fmt.H_STATE, fmt.RUNNING),
            (fmt.H_ITERATION, -1),
            (fmt.H_MICRO_BATCH, -1),
            (fmt.H_STRINGS_USED, self._strings_used),
        ):
            self.put(place, value)
        for name in ("threads", "groups", "events", "strings", "ring"):
            offset, how = getattr(fmt, f"H_{name.upper()}")
            struct.pack_into(how, self.map, offset, *self.regions[name])
        self.put_text(fmt.H_HOST, host())
        self.put_text(fmt.H_JOB, job)
        # Last, so that a reader never takes half a header for a whole one.
        self.put(fmt.H_MAGIC, fmt.MAGIC)

    def put(self, place: tuple[int, str], value: Any) -> None:
        """A value into the header."""
        struct.pack_into(place[1], self.map, place[0], value)

    def keep_pulse(self) -> None:
        """Show that the process runs, also while native code keeps the interpreter's lock; nothing
        without the extension, or without room for one more thread.
        """
        if native is not None:
            made = struct.unpack_from(fmt.H_CREATED_MONO[1], self.map, fmt.H_CREATED_MONO[0])[0]
            native.keep_pulse(self.map, made)

    @staticmethod
    def end_pulse() -> None:
        """Show it no longer."""
        if native is not None:
            native.end_pulse()

    def put_text(self, place: tuple[int, str], text: str) -> None:
        """A text into the header, cut to the room that it has there."""
        room = struct.calcsize(place[1])
        self.put(place, text.encode("utf-8", "replace")[: room - 1])

    def intern(self, text: str, share: float = 1.0) -> int:
        """An id for a text, or 0 where the table (or the caller's share of it) is full."""
        raw = text.encode("utf-8", "replace")
        known = self._ids.get(raw)
        if known is not None:
            return known
        begin, room, _ = self.regions["strings"]
        need = fmt.STRING_HEAD.size + len(raw)
        need += -need % fmt.STRING_UNIT
        at = self._strings_used
        if at + need > room * share:
            return 0
        self.map[
            begin + at + fmt.STRING_HEAD.size : begin + at + fmt.STRING_HEAD.size + len(raw)
        ] = raw
        fmt.STRING_HEAD.pack_into(self.map, begin + at, len(raw))
        self._strings_used = at + need
        self.put(fmt.H_STRINGS_USED, self._strings_used)
        self._ids[raw] = at // fmt.STRING_UNIT
        return at // fmt.STRING_UNIT

    def add_group(self, uid: str, size: int, members: str, name: str, instance: int) -> int:
        """Index of a new entry in the group table; NO_GROUP where that is full of groups that live.

        Entries of ended groups are used again once the table has been filled, so that they tell as
        long as they can.
        """
        begin, room, width = self.regions["groups"]
        if self._groups_used < room:
            index = self._groups_used
        elif self._ended:
            index = self._ended.popleft()
        else:
            return fmt.NO_GROUP
        ids = self.intern(members, _GROUP_TEXTS), self.intern(name, _GROUP_TEXTS)
        raw = bytes.fromhex(uid)
        at = begin + index * width
        # No check while it changes: a reader takes no entry that is half of one group and half of another.
        struct.pack_into("<I", self.map, at + fmt.GROUP_CHECK, 0)
        entry = raw, size, *ids, instance, 0, int.from_bytes(raw[:4], "little")
        fmt.GROUP.pack_into(self.map, at, *entry)
        if index == self._groups_used:
            self._groups_used = index + 1
            self.put(fmt.H_GROUPS_USED, self._groups_used)
        return index

    def end_group(self, index: int) -> None:
        """The group is gone: its entry may pass to a later one."""
        if index != fmt.NO_GROUP:
            begin, _, width = self.regions["groups"]
            struct.pack_into("<I", self.map, begin + index * width + fmt.GROUP_ENDED, 1)
            self._ended.append(index)

    def add_thread(self, index: int, tid: int, name: str) -> int:
        """Take one slot of the thread table; returns the index in `words` where it begins."""
        begin, _, width = self.regions["threads"]
        entry = tid, 0, 0, 0, name.encode("utf-8", "replace")[:31]
        fmt.THREAD.pack_into(self.map, begin + index * width, *entry)
        return (begin + index * width) // 8

    def inline(self, record_byte: int, text: str) -> None:
        """Text into the record itself, for when the table of strings is full."""
        raw = text.encode("utf-8", "replace")[: fmt.INLINE_BYTES].ljust(fmt.INLINE_BYTES, b"\0")
        at = record_byte + fmt.INLINE_OFFSET
        self.map[at : at + fmt.INLINE_BYTES] = raw

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

    def end_by(self, error: BaseException) -> None:
        """The exception that ends the process, with its last frames."""
        ending.write(self.path, self._file, *ending.of_exception(error))

    def end_without_error(self) -> None:
        """Take the box away, unless a `hangdoctor run` does it: it alone learns the exit code."""
        if ending.is_watched(self.path.parent):
            ending.write(self.path, self._file, fmt.WITHOUT_EXCEPTION)
            return
        self.remove()
        remove_if_empty(self.path.parent)

    def remove(self) -> None:
        """Take the file away; the mapping stays until the process ends, other threads may still
        write to it.
        """
        if os.getpid() == self.pid:
            remove_own(self.path, self._file)
            for suffix, magic in fmt.BESIDE:
                discard(self.path.with_suffix(suffix), magic)
