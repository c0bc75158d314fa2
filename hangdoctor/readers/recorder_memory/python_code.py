"""Function, file and line of a Python code object in the memory of another process.

Sources: CPython's Include/cpython/code.h and unicodeobject.h of 3.11 to 3.13, and
Objects/locations.md for the table of lines. Other versions are not read.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct

from ...text.late import late
from .process_memory import Mapping, ProcessMemory, Unreadable

_VERSION = late(r"(?:/python|libpython)3\.(\d+)")
_FILE, _NAME, _TABLE, _CODE_SIZE = 112, 120, 136, 144
_FIRST_LINE = {11: 72, 12: 68, 13: 68}
_WITH_WSTR = 11  # the last version whose texts have that field
_ASCII, _COMPACT = 1 << 6, 1 << 5
_MOST_TEXT = 1 << 12
_MOST_TABLE = 1 << 20
_BYTES = 32  # of a bytes object before its data
_NO_LINE, _LONG, _NO_COLUMNS, _ONE_LINE = 15, 14, 13, 10


class Place(Struct, frozen=True):
    """Where a frame is."""

    name: str
    filename: str
    line: int


def minor_version(mappings: Sequence[Mapping]) -> int:
    """11 of Python 3.11, by the files that a process has mapped; 0 where it is none that is known."""
    found = (_VERSION.search(mapping.path) for mapping in mappings)
    minor = next((int(match[1]) for match in found if match), 0)
    return minor if minor in _FIRST_LINE else 0


class CodeReader:
    """Places by code object, each read once."""

    def __init__(self, memory: ProcessMemory) -> None:
        self.memory = memory
        self.minor = minor_version(memory.mappings)
        self._known: dict[tuple[int, int], Place | None] = {}
        self._tables: dict[int, tuple[str, str, int, bytes]] = {}

    def place(self, code: int, last: int) -> Place | None:
        """Where a frame of this code object is whose last instruction is at byte `last`; None where
        that cannot be read.
        """
        if (code, last) not in self._known:
            self._known[code, last] = self._place(code, last) if self.minor else None
        return self._known[code, last]

    def _place(self, code: int, last: int) -> Place | None:
        try:
            if code not in self._tables:
                self._tables[code] = self._code(code)
        except Unreadable:
            return None
        name, file, first, table = self._tables[code]
        if not _is_file(file) or not name.isprintable():
            return None
        return Place(name, file, line_at(table, first, last))

    def _code(self, address: int) -> tuple[str, str, int, bytes]:
        data = self.memory.read(address, _CODE_SIZE)
        file, name, table = (struct.unpack_from("<Q", data, at)[0] for at in (_FILE, _NAME, _TABLE))
        (first,) = struct.unpack_from("<i", data, _FIRST_LINE[self.minor])
        return self._text(name), self._text(file), first, self._bytes(table)

    def _text(self, address: int) -> str:
        head = self.memory.read(address, 40)
        (length,) = struct.unpack_from("<q", head, 16)
        (state,) = struct.unpack_from("<I", head, 32)
        if not state & _COMPACT or not 0 <= length <= _MOST_TEXT:
            raise Unreadable("not a text")
        has_wstr = self.minor <= _WITH_WSTR
        if state & _ASCII:
            return self.memory.read(address + (48 if has_wstr else 40), length).decode(
                "ascii", "replace"
            )
        width = state >> 2 & 7
        codec = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}.get(width)
        if codec is None:
            raise Unreadable("not a text")
        start = address + (72 if has_wstr else 56)
        return self.memory.read(start, length * width).decode(codec, "replace")

    def _bytes(self, address: int) -> bytes:
        (size,) = struct.unpack("<q", self.memory.read(address + 16, 8))
        if not 0 <= size <= _MOST_TABLE:
            raise Unreadable("not bytes")
        return self.memory.read(address + _BYTES, size)


def _is_file(name: str) -> bool:
    """Whether code can be of it: a path, or ``<string>``."""
    return name.isprintable() and any(mark in name for mark in "/.<")


def line_at(table: bytes, first: int, last: int) -> int:
    """The line of the instruction at byte `last`, by a code object's table; `first` where it has none.

    An entry is a byte with its kind and how many instructions it is for, and what its kind needs.
    """
    line, unit, at = first, 0, 0
    while at < len(table):
        kind, units = table[at] >> 3 & 15, (table[at] & 7) + 1
        at += 1
        change, at = _change(table, at, kind)
        line += change
        unit += units
        if 2 * unit > last:
            return line if kind != _NO_LINE else first
    return first


def _change(table: bytes, at: int, kind: int) -> tuple[int, int]:
    """(lines to go on, where the next entry begins) of an entry of this kind."""
    if kind == _NO_LINE:
        return 0, at
    if kind in (_LONG, _NO_COLUMNS):
        value, at = _varint(table, at)
        change = -(value >> 1) if value & 1 else value >> 1
        for _ in range(3 if kind == _LONG else 0):
            _, at = _varint(table, at)
        return change, at
    if kind >= _ONE_LINE:
        return kind - _ONE_LINE, at + 2
    return 0, at + 1


def _varint(table: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(table):
        byte = table[at]
        at += 1
        value |= (byte & 63) << shift
        shift += 6
        if not byte & 64:
            break
    return value, at
