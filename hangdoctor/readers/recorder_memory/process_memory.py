"""The memory of another process, read while it runs: nothing of it is stopped or changed.

Needs the right that py-spy needs (ptrace(2), "ptrace access mode checking"). Works on a stopped
process, too.
"""

from __future__ import annotations

import ctypes
import os
import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

from msgspec import Struct

from ...text.late import late

_LINE = late(r"^([0-9a-f]+)-([0-9a-f]+) (\S+) ([0-9a-f]+) \S+ \d+ *(.*)$")
_DELETED = " (deleted)"
MOST = 1 << 26  # bytes of one read
_AT_ONCE = 1024  # pieces of one call (IOV_MAX)
_LIBC = ctypes.CDLL(None, use_errno=True)


class Unreadable(Exception):
    """There is no such memory, or it is not to be read."""


class Mapping(Struct, frozen=True):
    """One line of /proc/PID/maps."""

    begin: int
    end: int
    rights: str
    offset: int
    path: str


class ProcessMemory:
    """An open process; a context manager.

    Raises:
        Unreadable: it has ended, or belongs to someone else.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self.mappings = list(_mappings(pid))
            self._file = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise Unreadable(error.strerror) from error
        writable = [m for m in self.mappings if m.rights.startswith("rw") and _is_heap(m.path)]
        self._begins = [m.begin for m in writable]
        self._ends = [m.end for m in writable]

    def __enter__(self) -> ProcessMemory:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._file)

    def read(self, address: int, size: int) -> bytes:
        """`size` bytes at an address.

        Raises:
            Unreadable: not all of them are there, or more are asked for than any structure has.
        """
        if not 0 <= size <= MOST or not 0 < address < 1 << 63:
            raise Unreadable(f"{size} bytes at {address:#x}")
        try:
            data = os.pread(self._file, size, address)
        except (OSError, OverflowError) as error:
            raise Unreadable(f"{size} bytes at {address:#x}") from error
        if len(data) < size:
            raise Unreadable(f"{size} bytes at {address:#x}")
        return data

    def read_each(self, addresses: Sequence[int], size: int) -> Iterator[bytes | None]:
        """`size` bytes at each of many addresses, in few calls; None where they are not there."""
        for first in range(0, len(addresses), _AT_ONCE):
            some = addresses[first : first + _AT_ONCE]
            data = self._gathered(some, size)
            for place, address in enumerate(some):
                at = place * size
                yield data[at : at + size] if at < len(data) else self._or_none(address, size)

    def _gathered(self, addresses: Sequence[int], size: int) -> bytes:
        """What process_vm_readv(2) reads of them in one go: it ends at the first that is not there."""
        buffer = ctypes.create_string_buffer(size * len(addresses))
        here = array("Q", (ctypes.addressof(buffer), len(buffer)))
        there = array("Q", [word for address in addresses for word in (address, size)])
        got = _LIBC.process_vm_readv(
            self.pid,
            ctypes.c_void_p(here.buffer_info()[0]),
            ctypes.c_ulong(1),
            ctypes.c_void_p(there.buffer_info()[0]),
            ctypes.c_ulong(len(addresses)),
            ctypes.c_ulong(0),
        )
        return buffer.raw[: max(0, int(got)) // size * size]

    def _or_none(self, address: int, size: int) -> bytes | None:
        try:
            return self.read(address, size)
        except Unreadable:
            return None

    def words(self, address: int, count: int) -> tuple[int, ...]:
        """So many unsigned 64-bit numbers."""
        return struct.unpack(f"<{count}Q", self.read(address, 8 * count))

    def is_heap(self, address: int) -> bool:
        """Whether what the program has allocated may be there."""
        place = bisect_right(self._begins, address) - 1
        return place >= 0 and address < self._ends[place]


def _is_heap(path: str) -> bool:
    return not path or path == "[heap]" or path.startswith("[anon:")


def _mappings(pid: int) -> Iterator[Mapping]:
    for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        begin, end, rights, offset, path = match.groups()
        path = path.removesuffix(_DELETED)
        yield Mapping(int(begin, 16), int(end, 16), rights, int(offset, 16), path)
