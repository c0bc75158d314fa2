"""Connections through the standard input and output of a command, where nothing else gets to the other
end: an agent in a pod reaches its collector by way of `kubectl exec`.

A frame is a kind, the number of its connection and a length, then so many bytes. The end that
listens opens connections; both close them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
from enum import IntEnum

from ..errors import WireError

_HEAD = struct.Struct("!BII")
_PIECE = 1 << 16
_LARGEST = 1 << 20
MARK = b"HANGDOCTOR-TUNNEL/1\n"  # before the first frame of the end in the pod


class Kind(IntEnum):
    """What a frame says."""

    FILES = 1  # what the other end needs to begin: JSON
    OPEN = 2
    DATA = 3
    CLOSE = 4
    ALIVE = 5


class Pipe:
    """Frames in both directions, over two file descriptors."""

    def __init__(self, incoming: asyncio.StreamReader, outgoing: int) -> None:
        self.incoming = incoming
        self.outgoing = outgoing
        self._sending = asyncio.Lock()

    async def receive(self) -> tuple[Kind, int, bytes] | None:
        """The next frame; None at the end.

        Raises:
            WireError: what came is no frame.
        """
        try:
            kind, number, size = _HEAD.unpack(await self.incoming.readexactly(_HEAD.size))
            if size > _LARGEST:
                raise WireError("the tunnel carries something else")
            return Kind(kind), number, await self.incoming.readexactly(size)
        except asyncio.IncompleteReadError:
            return None
        except ValueError as error:
            raise WireError(f"the tunnel carries something else: {error}") from error

    async def send(self, kind: Kind, number: int = 0, data: bytes = b"") -> None:
        """Send one frame, whole."""
        async with self._sending:
            await asyncio.to_thread(
                _write, self.outgoing, _HEAD.pack(kind, number, len(data)) + data
            )


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    with contextlib.suppress(BrokenPipeError):  # the reading side sees the end
        while left:
            left = left[os.write(descriptor, left) :]


class Connections:
    """Those that go through one pipe, by their numbers."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._pumps: set[asyncio.Task[None]] = set()

    def enter(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Carry what this connection says to the other end, from now on."""
        self._writers[number] = writer
        pump = asyncio.ensure_future(self._pump(number, reader))
        self._pumps.add(pump)
        pump.add_done_callback(self._pumps.discard)

    async def _pump(self, number: int, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_PIECE):
                await self.pipe.send(Kind.DATA, number, data)
        await self.pipe.send(Kind.CLOSE, number)
        self.close(number)

    async def take(self, number: int, data: bytes) -> None:
        """What the other end has for this connection."""
        writer = self._writers.get(number)
        if writer is not None:
            with contextlib.suppress(OSError):
                writer.write(data)
                await writer.drain()

    def close(self, number: int) -> None:
        """End this connection here."""
        writer = self._writers.pop(number, None)
        if writer is not None:
            writer.close()


async def reader_of(descriptor: int) -> asyncio.StreamReader:
    """What can be read from an open pipe."""
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    pipe = os.fdopen(os.dup(descriptor), "rb", buffering=0)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, pipe)
    return reader
