"""The content of a file beside a black box, as `probe.beside_file` writes it."""

from __future__ import annotations

import struct
from pathlib import Path

from ..files import read_regular
from ..probe import format as fmt


def content(box: Path, suffix: str, magic: bytes, most: int) -> bytes | None:
    """None of another file, and of one whose process was killed while it was written.

    Raises:
        OSError: there is none, or it cannot be read.
        BadInput: it has more than `most` bytes.
    """
    head = len(magic) + struct.calcsize(fmt.BESIDE_LENGTH)
    data = read_regular(box.with_suffix(suffix), most)
    if not data.startswith(magic) or len(data) < head:
        return None
    (length,) = struct.unpack(fmt.BESIDE_LENGTH, data[len(magic) : head])
    return data[head : head + length] if length <= len(data) - head else None
