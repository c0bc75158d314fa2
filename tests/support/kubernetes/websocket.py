"""The server's side of a WebSocket (RFC 6455), as far as `kubectl exec` needs it."""

from __future__ import annotations

import base64
import hashlib
import struct
import threading
from typing import BinaryIO

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
BINARY, CLOSE, PING, PONG = 2, 8, 9, 10


def accept(key: str) -> str:
    """The header that answers a client's key."""
    return base64.b64encode(hashlib.sha1(key.encode() + _GUID).digest()).decode()


class WebSocket:
    """Frames over a connection whose handshake is done."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        self.incoming, self.outgoing = incoming, outgoing
        self.lock = threading.Lock()

    def send(self, data: bytes, kind: int = BINARY) -> None:
        """One whole message; raises OSError where the client has gone."""
        size = len(data)
        if size < 126:
            head = struct.pack("!BB", 0x80 | kind, size)
        elif size < 1 << 16:
            head = struct.pack("!BBH", 0x80 | kind, 126, size)
        else:
            head = struct.pack("!BBQ", 0x80 | kind, 127, size)
        with self.lock:
            self.outgoing.write(head + data)
            self.outgoing.flush()

    def receive(self) -> bytes | None:
        """The next message; None at the end of the connection."""
        while True:
            frame = self._frame()
            if frame is None or frame[0] == CLOSE:
                return None
            if frame[0] == PING:
                self.send(frame[1], PONG)
            elif frame[0] != PONG:
                return frame[1]

    def _frame(self) -> tuple[int, bytes] | None:
        head = self.incoming.read(2)
        if len(head) < 2:
            return None
        kind, size = head[0] & 15, head[1] & 127
        if size == 126:
            [size] = struct.unpack("!H", self.incoming.read(2))
        elif size == 127:
            [size] = struct.unpack("!Q", self.incoming.read(8))
        mask = self.incoming.read(4)
        data = self.incoming.read(size)
        if len(data) < size:
            return None
        whole = int.from_bytes(data, "little")
        key = int.from_bytes((mask * (size // 4 + 1))[:size], "little")
        return kind, (whole ^ key).to_bytes(size, "little")
