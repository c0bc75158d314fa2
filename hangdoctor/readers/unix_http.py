"""One HTTP request over a Unix socket, all of it within a deadline."""

from __future__ import annotations

import http.client
import socket
import time
from pathlib import Path

from msgspec import Struct

_PART = 1 << 16


class Answer(Struct, frozen=True):
    """What came back."""

    status: int
    body: bytes
    cut: bool  # larger than was allowed, or the other side closed in the middle


class _Connection(http.client.HTTPConnection):
    """To a socket in the file system; every wait ends at the deadline."""

    def __init__(self, path: Path, deadline: float) -> None:
        super().__init__("localhost")
        self._path = path
        self._deadline = deadline

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.tick()
        self.sock.connect(str(self._path))

    def tick(self) -> None:
        """Give the socket what is left of the time."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if self.sock is not None:
            self.sock.settimeout(left)


def ask(path: Path, method: str, target: str, timeout_s: float, most: int) -> Answer:
    """The answer to one request, of which `most` bytes are read and a little more.

    Raises:
        TimeoutError: it did not come whole within `timeout_s` seconds.
        OSError: nothing listens at `path`, or what answers speaks no HTTP.
    """
    connection = _Connection(path, time.monotonic() + timeout_s)
    try:
        connection.request(method, target, body=b"" if method == "POST" else None)
        connection.tick()
        response = connection.getresponse()
        body = _body(connection, response, most)
    except http.client.HTTPException as e:
        raise OSError(str(e) or type(e).__name__) from e
    finally:
        connection.close()
    # Where the other side is killed in the middle, read1() takes that for the end.
    cut = len(body) > most or (response.length or 0) > 0
    return Answer(response.status, body, cut)


def _body(connection: _Connection, response: http.client.HTTPResponse, most: int) -> bytes:
    body = bytearray()
    while len(body) <= most:
        connection.tick()
        part = response.read1(_PART)
        if not part:
            break
        body += part
    return bytes(body)
