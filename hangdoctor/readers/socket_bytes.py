"""Bytes that TCP connections have carried so far: a rank that is blocked in recv gets on while they
grow, and /proc/PID/io counts read() and write() alone.

The kernel is asked by netlink (sock_diag(7)) for all connections of this network namespace at once,
as ss(8) does. Sockets of another namespace, and of other kinds, are not counted.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from ..model.capture import ProcessSample
from .connections import inodes_of

_NETLINK_SOCK_DIAG, _BY_FAMILY = 4, 20
_REQUEST, _DUMP = 1, 0x300
_DONE, _ERROR = 3, 2
_HEAD = struct.Struct("=IHHII")  # length, type, flags, sequence number, port
_ASK = struct.Struct("=BBBBI48x")  # family, protocol, extensions, padding, states, no socket
_ATTRIBUTE = struct.Struct("=HH")  # length, type
_INFO = 2  # the attribute with `struct tcp_info`; bit 1 of the extensions asks for it
_INODE_AT = 68  # of `struct inet_diag_msg`, which has 72 bytes
_MESSAGE_BYTES = 72
_COUNTS = struct.Struct("=QQ")  # tcpi_bytes_acked, tcpi_bytes_received
_COUNTS_AT = 120
_ESTABLISHED = 1 << 1
_PATIENCE_S = 1.0
_BUFFER = 1 << 16
_IN_SOCKET = "-> socket:["


class Carried(Struct, frozen=True):
    """Bytes of one connection."""

    sent: int
    received: int


class SocketCounts:
    """The counts of one moment; the kernel is asked when a process is first looked at."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, Carried] | None = None

    def add_to(self, pid: int, sample: ProcessSample) -> None:
        """Set what the process, and each of its threads that is blocked on a socket, has received and
        sent.
        """
        if not _same_namespace(pid):
            return
        own = [known for inode in inodes_of(pid) if (known := self._known.get(inode)) is not None]
        sample.received = sum(carried.received for carried in own)
        for thread in sample.threads:
            inode = thread.syscall.partition(_IN_SOCKET)[2].rstrip("])")
            carried = self._known.get(inode)
            if carried is not None:
                thread.received, thread.sent = carried.received, carried.sent

    @property
    def _known(self) -> dict[str, Carried]:
        with self._lock:
            if self._found is None:
                self._found = {}
                with contextlib.suppress(OSError, struct.error):
                    self._found = read_counts()
            return self._found


def read_counts() -> dict[str, Carried]:
    """What each established TCP connection of this namespace has carried, by inode.

    Raises:
        OSError: the kernel does not answer.
    """
    found: dict[str, Carried] = {}
    for family in (socket.AF_INET, socket.AF_INET6):
        for message in _answers(family):
            carried = _carried(message)
            if carried is not None:
                found[str(int.from_bytes(message[_INODE_AT:_MESSAGE_BYTES], "little"))] = carried
    return found


def _answers(family: int) -> Iterator[bytes]:
    """The messages of a dump, without their heads."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as link:
        link.settimeout(_PATIENCE_S)
        ask = _ASK.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, _ESTABLISHED)
        head = _HEAD.pack(_HEAD.size + len(ask), _BY_FAMILY, _REQUEST | _DUMP, 1, 0)
        link.send(head + ask)
        while True:
            data = link.recv(_BUFFER)
            while len(data) >= _HEAD.size:
                length, kind, *_ = _HEAD.unpack_from(data)
                if kind in (_DONE, _ERROR) or length < _HEAD.size:
                    return
                yield data[_HEAD.size : length]
                data = data[_aligned(length) :]


def _carried(message: bytes) -> Carried | None:
    at = _MESSAGE_BYTES
    while at + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, at)
        info = message[at + _ATTRIBUTE.size : at + length]
        if kind == _INFO and len(info) >= _COUNTS_AT + _COUNTS.size:
            return Carried(*_COUNTS.unpack_from(info, _COUNTS_AT))
        at += max(_aligned(length), _ATTRIBUTE.size)
    return None


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def _same_namespace(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/ns/net").readlink() == Path("/proc/self/ns/net").readlink()
    except OSError:
        return False
