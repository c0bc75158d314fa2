"""Values of C++ types as they lie in a process's memory: libstdc++'s strings, vectors, maps and
optionals, and c10::SmallVector.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from .process_memory import ProcessMemory, Unreadable

_TEXT_HEAD = 16  # pointer, length; behind them short texts themselves
_TEXT = struct.Struct("<2Q")
_SMALL_HEAD = struct.Struct("<Q2I")
_MOST_TEXT = 1 << 12
_MOST_ITEMS = 1 << 16
_MOST_NODES = 1 << 16
_NODE = 32  # colour, parent, left, right; behind them the value


def text(memory: ProcessMemory, data: bytes, at: int, address: int) -> str:
    """A std::string at place `at` of `data`, which was read from `address`."""
    pointer, length = _TEXT.unpack_from(data, at)
    if length > _MOST_TEXT:
        raise Unreadable(f"a text of {length} bytes")
    inside = pointer == address + at + _TEXT_HEAD
    if inside:
        raw = data[at + _TEXT_HEAD : at + _TEXT_HEAD + length]
    else:
        raw = memory.read(pointer, length) if length else b""
    return raw.decode("utf-8", "replace")


def small_vector(memory: ProcessMemory, data: bytes, at: int, address: int) -> list[int]:
    """A c10::SmallVector<int64_t, N>."""
    pointer, size, _ = _SMALL_HEAD.unpack_from(data, at)
    if size > _MOST_ITEMS:
        raise Unreadable(f"a vector of {size} numbers")
    start = at + _SMALL_HEAD.size
    if pointer == address + start:
        raw = data[start : start + 8 * size]
    else:
        raw = memory.read(pointer, 8 * size) if size else b""
    return list(struct.unpack(f"<{size}q", raw))


def vector_bytes(memory: ProcessMemory, data: bytes, at: int) -> bytes:
    """What a std::vector holds."""
    begin, end = _TEXT.unpack_from(data, at)
    if not 0 <= end - begin <= 8 * _MOST_ITEMS:
        raise Unreadable(f"a vector of {end - begin} bytes")
    return memory.read(begin, end - begin) if end > begin else b""


def optional_whole(data: bytes, at: int) -> int | None:
    """A std::optional<int64_t>."""
    value, has = struct.unpack_from("<qB", data, at)
    return int(value) if has else None


def map_values(
    memory: ProcessMemory, head: bytes, at: int, size: int
) -> Iterator[tuple[int, bytes]]:
    """(address, bytes) of each pair in a std::map of pairs of so many bytes, in order.

    The tree's head is a node of its own behind the comparator, and its parent is the root.
    """
    root, _, _, count = struct.unpack_from("<4Q", head, at + 16)
    if not 0 <= count <= _MOST_NODES:
        raise Unreadable(f"a map of {count}")
    left_to_see = count
    above: list[tuple[int, bytes]] = []
    node = root if count else 0
    while node or above:
        while node:
            if len(above) > 64:
                raise Unreadable("a map without an end")
            row = memory.read(node, _NODE + size)
            above.append((node, row))
            node = struct.unpack_from("<Q", row, 16)[0]
        address, row = above.pop()
        left_to_see -= 1
        if left_to_see < 0:
            raise Unreadable("a map without an end")
        yield address + _NODE, row[_NODE:]
        node = struct.unpack_from("<Q", row, 24)[0]
