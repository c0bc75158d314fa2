"""The channel between the collector's process and the page's: a socket pair, each frame with its
length in front.

collector -> page    first an `Opening`, then a `Snapshot` each second; never two under way at once
page -> collector    an `Ask` for a capture
"""

from __future__ import annotations

import asyncio
import struct

from msgspec import Struct

_LENGTH = struct.Struct("<I")
MAX_SNAPSHOT = 256 << 20
MAX_ASK = 4096


class Ask(Struct):
    """Capture now, and why."""

    reason: str


def frame(payload: bytes) -> bytes:
    """The payload with its length in front (4 bytes, little endian)."""
    return _LENGTH.pack(len(payload)) + payload


async def read_frame(reader: asyncio.StreamReader, limit: int) -> bytes | None:
    """The next frame; None at the end of the channel, and for a frame that is longer than `limit`."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        return await reader.readexactly(length) if length <= limit else None
    except (asyncio.IncompleteReadError, OSError):
        return None
