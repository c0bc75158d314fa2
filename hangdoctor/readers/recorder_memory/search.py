"""Finds torch's recorder in a process: a pointer to it is among the zero-initialised variables of the
library that made it (`FlightRecorder<...>::get()`), and what it points to must look like one.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path, PurePosixPath

from msgspec import Struct

from ...errors import BadInput
from ...files import read_regular
from .class_layout import ClassLayout, UnknownClass, layout_of
from .libraries import Library, torch_libraries
from .process_memory import ProcessMemory, Unreadable

_HEADERS = "include/torch/csrc/distributed/c10d"
_MOST_HEADER = 1 << 20
_MOST_ENTRIES = 10_000_000
_LOAD_FACTOR = struct.pack("<f", 1.0)
_FACTOR_AT = 32  # of an unordered_map
# (library, size of its variables) -> where the pointer is among them, as found before.
_places: dict[tuple[str, int], int] = {}
_NEEDED = ("enabled_", "entries_", "max_entries_", "next_", "id_")


class Layouts(Struct, frozen=True):
    """The classes that are read."""

    recorder: ClassLayout
    entry: ClassLayout
    status: ClassLayout | None = None  # of a group; what it adds is not needed


class Found(Struct, frozen=True):
    """One recorder: where it is, and its own fields as they were then."""

    address: int
    library: str
    layouts: Layouts
    data: bytes
    begin: int  # of its entries
    count: int
    most: int  # as many as there is room for
    next: int  # the place of the next record
    id: int  # its number

    def whole(self, name: str, default: int = 0) -> int:
        """A field of 64 bits; `default` where this version of torch has none of this name."""
        field = self.layouts.recorder.fields.get(name)
        if field is None:
            return default
        return int(struct.unpack_from("<Q", self.data, field.offset)[0])


def find(memory: ProcessMemory) -> Iterator[Found]:
    """The recorders of a process that have recorded something."""
    for library in torch_libraries(memory):
        layouts = _layouts(memory.pid, library.path)
        if layouts is None:
            continue
        found = _where_it_was(memory, library, layouts) or _anywhere(memory, library, layouts)
        if found is not None:
            yield found


def _where_it_was(memory: ProcessMemory, library: Library, layouts: Layouts) -> Found | None:
    """By the place of the pointer that another process with this library had: mostly another rank."""
    place = _places.get((library.path, library.size))
    if place is None:
        return None
    try:
        (address,) = memory.words(library.begin + place, 1)
        data = memory.read(address, layouts.recorder.size)
    except Unreadable:
        return None
    return _found(memory, address, data, library.path, layouts)


def _anywhere(memory: ProcessMemory, library: Library, layouts: Layouts) -> Found | None:
    """By all pointers among the library's variables."""
    words = _variables(memory, library)
    unlike = {word for word in words if word > 0xFFFF and not word % 16}
    pointers = [word for word in unlike if memory.is_heap(word)]
    contents = memory.read_each(pointers, layouts.recorder.size)
    for address, data in zip(pointers, contents, strict=True):
        found = _found(memory, address, data, library.path, layouts) if data else None
        if found is not None:
            _places[library.path, library.size] = 8 * words.index(address)
            return found
    return None


def again(memory: ProcessMemory, recorder: Found) -> Found | None:
    """The same recorder as it is now; None where it is there no more."""
    layouts = recorder.layouts
    try:
        data = memory.read(recorder.address, layouts.recorder.size)
    except Unreadable:
        return None
    return _found(memory, recorder.address, data, recorder.library, layouts)


def _found(
    memory: ProcessMemory, address: int, data: bytes, library: str, layouts: Layouts
) -> Found | None:
    """The recorder whose fields these are; None where they are none of one."""
    fields = layouts.recorder.fields
    if data[fields["enabled_"].offset] != 1:
        return None
    begin, end, room = struct.unpack_from("<3Q", data, fields["entries_"].offset)
    most, next_, id_ = (_whole(data, fields[name].offset) for name in _NEEDED[2:])
    count, rest = divmod(end - begin, layouts.entry.size)
    if rest or not 0 < count <= most <= _MOST_ENTRIES or room < end or not id_ >= count:
        return None
    if next_ not in (count, 0) and not (count == most and next_ < most):
        return None
    epochs = fields.get("reset_epoch_start_idx_")
    if epochs is not None:
        start = epochs.offset + _FACTOR_AT
        if data[start : start + len(_LOAD_FACTOR)] != _LOAD_FACTOR:
            return None
    if not memory.is_heap(begin):
        return None
    return Found(
        address, library, layouts, data, begin=begin, count=count, most=most, next=next_, id=id_
    )


def _whole(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<Q", data, at)[0])


def _variables(memory: ProcessMemory, library: Library) -> array[int]:
    words = array("Q")
    with suppress(Unreadable):
        words.frombytes(memory.read(library.begin, library.size // 8 * 8))
    return words


def _layouts(pid: int, library: str) -> Layouts | None:
    """By the headers of the job's own torch, as its process sees them: another container may have
    another version at the same path.
    """
    folder = PurePosixPath(library).parent.parent / _HEADERS
    return _layouts_in(Path(f"/proc/{pid}/root{folder}"))


@lru_cache(maxsize=8)
def _layouts_of(recorder: str, status: str) -> Layouts | None:
    try:
        own, entry = layout_of(recorder, "FlightRecorder"), layout_of(recorder, "Entry")
    except UnknownClass:
        return None
    if any(name not in own.fields for name in _NEEDED):
        return None
    try:
        return Layouts(own, entry, layout_of(status, "ProcessGroupStatus"))
    except UnknownClass:
        return Layouts(own, entry)


def _layouts_in(folder: Path) -> Layouts | None:
    try:
        recorder = _text(folder / "FlightRecorder.hpp")
    except (OSError, BadInput):
        return None
    try:
        status = _text(folder / "logger.hpp")
    except (OSError, BadInput):
        status = ""
    return _layouts_of(recorder, status)


def _text(path: Path) -> str:
    return read_regular(path, _MOST_HEADER).decode("utf-8", "replace")
