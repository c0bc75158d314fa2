"""Keeps raw connections to the agents' port from taking all files of the collector.

ZeroMQ accepts whoever comes and gives each ten seconds for the handshake; meanwhile each is an open
file, as every agent is, and as the files of the incidents are. Here the process looks at its own
sockets, and only when many files are open: a connection that has sent less than a handshake takes
is unfinished, and where one address has many of them, or all together are too many, they are shut
down, the oldest first. Agents finish theirs within milliseconds, or come again.
"""

from __future__ import annotations

import os
import resource
import socket
import struct
from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

PERIOD_S = 0.25
BUSY_S = 0.05  # after some were cut off
AN_ADDRESS = 64
IN_ALL = 512
_HANDSHAKE = 500  # bytes: greeting (64), HELLO (202) and INITIATE (more than 259) of CURVE
_MOMENT_MS = 1000
_FEW_FILES = 128  # more open files than that beside the agents are worth a check
_MOST_FILES = 1 << 20
_INFO_BYTES = 136
_LAST_DATA = (
    8 + 11 * 4,
    "<I",
)  # of struct tcp_info (linux/tcp.h): tcpi_last_data_recv, since the accept where nothing came
_RECEIVED = (128, "<Q")  # tcpi_bytes_received


class Unfinished(Struct, frozen=True):
    """A connection without a whole handshake."""

    number: int
    address: str
    quiet_ms: int


class Crowd:
    """Watches the connections to one port of this process."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.shut = 0  # connections so far

    def thin_out(self, agents: int) -> int:
        """Shut down unfinished connections that are too many; how many were. `agents` are expected
        to be connected.
        """
        limit = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], _MOST_FILES)
        lowest_free = min(_lowest_free(), limit)
        if lowest_free < agents + _FEW_FILES:
            return 0
        scarce = lowest_free > limit // 2
        found = sorted(self._unfinished(lowest_free), key=lambda one: -one.quiet_ms)
        count = 0
        of_address = Counter(one.address for one in found)
        in_all = len(found)
        for one in found:
            crowded = of_address[one.address] > AN_ADDRESS or in_all > min(IN_ALL, limit // 8)
            if crowded and (scarce or one.quiet_ms >= _MOMENT_MS) and self._shut(one):
                of_address[one.address] -= 1
                in_all -= 1
                count += 1
        self.shut += count
        return count

    def _unfinished(self, lowest_free: int) -> Iterator[Unfinished]:
        """Numbers are tried, not listed: to read /proc takes a file, and there may be none left."""
        for number in range(3, lowest_free):
            try:
                one = self._look(number)
            except OSError:
                continue  # no socket, or closed meanwhile
            if one is not None:
                yield one

    def _look(self, number: int) -> Unfinished | None:
        connection = socket.socket(fileno=number)
        try:
            if (
                connection.family not in (socket.AF_INET, socket.AF_INET6)
                or connection.getsockname()[1] != self.port
            ):
                return None
            address = str(connection.getpeername()[0])  # of the listening socket: OSError
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
        finally:
            connection.detach()  # it is ZeroMQ's
        if len(info) < _INFO_BYTES or _of(info, _RECEIVED) >= _HANDSHAKE:
            return None
        return Unfinished(number, address, _of(info, _LAST_DATA))

    def _shut(self, one: Unfinished) -> bool:
        """Shut down, not close: ZeroMQ then sees an end and closes the file itself."""
        try:
            if self._look(one.number) is None:
                return False
            connection = socket.socket(fileno=one.number)
        except OSError:
            return False
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return False
        finally:
            connection.detach()
        return True


def _of(info: bytes, place: tuple[int, str]) -> int:
    number: int = struct.unpack_from(place[1], info, place[0])[0]
    return number


def _lowest_free() -> int:
    """The lowest number that is not an open file: all below it are. A high number where none can be
    opened.
    """
    try:
        number = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 1 << 30
    os.close(number)
    return number
