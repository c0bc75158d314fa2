"""torch's libraries in a process, and where each keeps its variables that begin as zero (.bss).

A library's program header says where (ELF-64, "Program Header"); it lies in memory with the library,
so that no file is read, whose file system may not answer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import PurePosixPath

from msgspec import Struct

from ...text.late import late
from .process_memory import Mapping, ProcessMemory, Unreadable

# gloo's recorder is in the first; the others have one of their own devices.
_NAME = late(r"^libtorch_(cpu|cuda|hip|xpu|npu)\.so")
_HEADER = struct.Struct("<16s2HI3QI6H")
_PROGRAM = struct.Struct("<2I6Q")
_LOAD = 1
_MOST_BSS = 1 << 25
_MOST_SEGMENTS = 64


class Library(Struct, frozen=True):
    """One library, and the range of its zero-initialised variables."""

    path: str
    begin: int
    size: int


def torch_libraries(memory: ProcessMemory) -> Iterator[Library]:
    """Those of torch that have such variables."""
    for mapping in memory.mappings:
        if mapping.offset or not _NAME.match(PurePosixPath(mapping.path).name):
            continue
        try:
            found = _bss(memory, mapping)
        except (Unreadable, struct.error):
            continue
        if found is not None:
            yield found


def _bss(memory: ProcessMemory, mapping: Mapping) -> Library | None:
    header = _HEADER.unpack(memory.read(mapping.begin, _HEADER.size))
    magic, table, entry_size, entries = header[0], header[5], header[9], header[10]
    if magic[:5] != b"\x7fELF\x02" or entry_size != _PROGRAM.size or entries > _MOST_SEGMENTS:
        return None
    data = memory.read(mapping.begin + table, entry_size * entries)
    loads = [row for row in _PROGRAM.iter_unpack(data) if row[0] == _LOAD]
    if not loads:
        return None
    base = mapping.begin - loads[0][3]
    for _, _, _, address, _, in_file, in_memory, _ in loads:
        size = in_memory - in_file
        if 0 < size <= _MOST_BSS:
            begin = -(-(base + address + in_file) // 8) * 8
            return Library(mapping.path, begin, size)
    return None
