"""The page's own process, started by the collector: ``python -m hangdoctor.sidecar.page_process
LISTENING CHANNEL``.

Both arguments are numbers of open sockets. It ends when the collector closes the channel or has
ended.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
import time
from pathlib import Path

import msgspec

from ..collector.operator_requests import put_trace
from ..errors import CollectorError
from ..logs import to_stderr
from ..probe.calls.request import Request
from ..storage.incidents import Incidents
from ..web.channel import MAX_ASK, MAX_SNAPSHOT, Ask, frame, read_frame
from ..web.collector_mirror import Mirror
from ..web.page_socket import Opening
from ..web.reports import Reports
from ..web.server import WebServer
from ..web.snapshot import Board, Doors
from .wiring import allow_connections

_NICE = 5  # behind the collector, where both want the same processor


class Channel:
    """What the page asks of the collector."""

    def __init__(self, folder: Path, writer: asyncio.StreamWriter) -> None:
        self.folder, self.writer = folder, writer

    def ask(self, reason: str) -> None:
        """Have all ranks captured. Requests that the collector does not take are dropped: one is
        enough.
        """
        if self.writer.transport.get_write_buffer_size() < MAX_ASK:
            self.writer.write(frame(msgspec.msgpack.encode(Ask(reason))))

    def trace(self, on: bool) -> str:
        """As `hangdoctor trace` asks: by a file in the folder, which the collector looks at each
        second.

        Raises:
            CollectorError: the folder cannot be written.
        """
        put_trace(self.folder, Request(time.time_ns(), on))
        return f"Tracing of Python calls was switched {'on' if on else 'off'} in all ranks that have the probe."


async def serve(listening: socket.socket, ours: socket.socket) -> None:
    """Until the channel ends."""
    reader, writer = await asyncio.open_connection(sock=ours)
    begin = await read_frame(reader, MAX_SNAPSHOT)
    if begin is None:
        return
    opening = msgspec.msgpack.decode(begin, type=Opening)
    folder = Path(opening.folder)
    channel, mirror = Channel(folder, writer), Mirror()
    board = Board(mirror, Incidents(folder), Doors(channel.ask, Reports(), channel.trace))
    if not await _took(mirror, reader):
        return
    server = WebServer(opening, listening, board)
    serving = asyncio.create_task(server.serve())
    feeding = asyncio.create_task(_feed(mirror, reader))
    await asyncio.wait({serving, feeding}, return_when=asyncio.FIRST_COMPLETED)
    server.stop()
    await serving
    feeding.cancel()


async def _feed(mirror: Mirror, reader: asyncio.StreamReader) -> None:
    while await _took(mirror, reader):
        pass


async def _took(mirror: Mirror, reader: asyncio.StreamReader) -> bool:
    packed = await read_frame(reader, MAX_SNAPSHOT)
    if packed is not None:
        mirror.take(packed)
    return packed is not None


def main() -> None:
    """Raises CollectorError: it was not started by a collector."""
    try:
        listening, ours = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    except (ValueError, OSError) as error:
        raise CollectorError(
            "this program is only started by `hangdoctor collect --web`",
            "Start hangdoctor collect --web instead.",
        ) from error
    to_stderr()
    allow_connections()
    os.nice(_NICE)
    gc.set_threshold(
        200_000, 50, 1000
    )  # rows and frames of a large job are many objects without cycles
    asyncio.run(serve(listening, ours))


if __name__ == "__main__":
    main()
