"""The stream of the page (server-sent events): each frame is encoded and compressed once for all
readers.

Every frame ends with a full flush of the compressor, so that the same bytes fit behind any reader's
own beginning. A reader that does not keep up is cut off; its browser comes back by itself and
begins anew. (https://html.spec.whatwg.org/multipage/server-sent-events.html,
https://www.rfc-editor.org/rfc/rfc1951)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import zlib

import msgspec
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from .frames import Frame, Frames, status_of
from .snapshot import Board

INTERVAL_S = 1.0
MAX_READERS = 512
_BEHIND = 4  # frames that wait for a reader before it is cut off
_GZIP = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_LOG = logging.getLogger("hangdoctor.web")


class Reader:
    """One open page. `frames` holds what its connection has not taken yet; None is the end."""

    def __init__(self, zipped: bool) -> None:
        self.zipped = zipped
        self.frames: asyncio.Queue[bytes | None] = asyncio.Queue(_BEHIND)
        self.task: asyncio.Task[None] | None = None

    def offer(self, data: bytes | None) -> bool:
        """Put one more frame in; False where too many wait already."""
        with contextlib.suppress(asyncio.QueueFull):
            self.frames.put_nowait(data)
            return True
        return False


class Packer:
    """Text to the bytes of a frame, plain and compressed."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(4, zlib.DEFLATED, -15)

    def pack(self, kind: str, frame: Frame) -> tuple[bytes, bytes]:
        """(the event as text, the same deflated and flushed)."""
        plain = b"event: %s\nid: %d\ndata: %s\n\n" % (
            kind.encode(),
            frame.number,
            msgspec.json.encode(frame),
        )
        return plain, self._deflate.compress(plain) + self._deflate.flush(zlib.Z_FULL_FLUSH)


class Hub:
    """Makes a frame each second while someone reads."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.readers: set[Reader] = set()
        self.cut_off = 0
        self.step_s = 0.0  # the work of the last frame
        self._frames = Frames()
        self._packer = Packer()
        self._full: tuple[int, tuple[bytes, bytes]] | None = None
        self._told = -1
        self._incidents: object = None
        self._events: object = None

    async def run(self) -> None:
        """Until it is cancelled; a frame that cannot be made is left out."""
        while True:
            begin = time.monotonic()
            if self.readers:
                try:
                    self.step()
                except Exception:  # the next one may be made; the watch goes on
                    _LOG.exception("a frame of the page could not be made")
            self.step_s = time.monotonic() - begin
            # Of 100,000 ranks a frame is most of a second's work: as long again is for those who
            # ask.
            await asyncio.sleep(
                max(INTERVAL_S / 4, INTERVAL_S - self.step_s, min(self.step_s, 5 * INTERVAL_S))
            )

    def step(self) -> None:
        """Make one frame and offer it to all readers."""
        frame = self._next()
        plain, zipped = self._packer.pack("delta", frame)
        for reader in list(self.readers):
            if not reader.offer(zipped if reader.zipped else plain):
                self._cut(reader)

    def _next(self) -> Frame:
        board, look = self.board, self.board.look(fresh_s=0.0)
        rows = board.rows()
        news = rows if rows is not self._incidents else None
        self._incidents = rows
        events = board.events()
        said = events if events is not self._events else None
        self._events = events
        status = status_of(board, look)
        return self._frames.step(look, status, news, board.view.concluded, events=said)

    def _cut(self, reader: Reader) -> None:
        self.readers.discard(reader)
        self.cut_off += 1
        if reader.task is not None:
            reader.task.cancel()

    def beginning(self) -> tuple[bytes, bytes]:
        """What a new reader needs; made once for all that come between two frames."""
        if self._frames.last is None or not self.readers:
            self._next()
        assert self._frames.last is not None
        if self._full is None or self._full[0] != self._frames.last.number:
            frame = self._frames.full(self.board.rows(), self.board.events())
            self._full = (frame.number, Packer().pack("full", frame))
        return self._full[1]

    def close(self) -> None:
        """End all streams: a reader that has not taken what it was offered is cut off."""
        for reader in self.readers:
            if not reader.offer(None) and reader.task is not None:
                reader.task.cancel()

    # ----------------------------------------------------------------- one reader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """GET /api/v1/stream."""
        if len(self.readers) >= MAX_READERS:
            body = msgspec.json.encode(
                {"error": f"{MAX_READERS} pages are open already", "help": "Close one."}
            )
            await send(
                {
                    "type": "http.response.start",
                    "status": 503,
                    "headers": [(b"content-type", b"application/json")],
                }
            )
            await send({"type": "http.response.body", "body": body})
            return
        zipped = "gzip" in Headers(scope=scope).get("accept-encoding", "")
        reader = Reader(zipped)
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        if zipped:
            headers.append((b"content-encoding", b"gzip"))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        # Between here and `add` nothing waits: no frame is missed.
        plain, compressed = self.beginning()
        reader.offer(_GZIP + compressed if zipped else plain)
        self.readers.add(reader)
        reader.task = asyncio.ensure_future(_pump(reader, send))
        watch = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait({reader.task, watch}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.readers.discard(reader)
            late = reader.task.cancelled()
            if reader.task.done() and not late:
                reader.task.exception()  # the connection broke: nothing more to say to it
            reader.task.cancel()
            watch.cancel()
            if late:
                _abort(receive)


async def _pump(reader: Reader, send: Send) -> None:
    while (data := await reader.frames.get()) is not None:
        await send({"type": "http.response.body", "body": data, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _abort(receive: Receive) -> None:
    """Close the connection of a reader that takes nothing: a normal end would wait for it to take
    the rest.
    """
    transport = getattr(getattr(receive, "__self__", None), "transport", None)
    if isinstance(transport, asyncio.Transport):
        transport.abort()
