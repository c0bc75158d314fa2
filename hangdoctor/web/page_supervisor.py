"""Keeps the page's process running beside the collector, and feeds it.

The page has an interpreter of its own: however many read it, the agents wait for none of them. At
most one snapshot is on its way; what changes meanwhile is merged into the next one, so a slow page
costs the collector one entry a rank and no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from ..collector.view import View
from .channel import MAX_ASK, Ask, frame, read_frame
from .collector_mirror import Snapshot, encode
from .page_socket import Front

_STUCK_S = 30.0  # a page that takes no snapshot for this long is started anew
_AGAIN_S = (1.0, 2.0, 5.0, 15.0, 30.0)  # before another try, when it ended soon after it began
_SOON_S = 60.0
_END_S = 4.0
_HISTORY_S = 5.0
_LOG = logging.getLogger("hangdoctor.web")


class PageSupervisor:
    """The page of one collector."""

    def __init__(self, front: Front, view: View, ask: Callable[[str], None], module: str) -> None:
        """`module` is what the page's process runs: it gets the numbers of the listening socket and
        of the channel.
        """
        self.front, self.view, self.ask, self.module = front, view, ask, module
        self._history_at = 0.0  # when it was sent last

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve while the body runs.

        Raises:
            CollectorError: the folder takes no file.
        """
        self.front.publish()
        keeping = asyncio.create_task(self._keep())
        try:
            yield
        finally:
            keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeping
            self.front.close()

    async def _keep(self) -> None:
        """Start the page's process, again and again where it ends."""
        failures = 0
        while True:
            begin = time.monotonic()
            try:
                why = await self._once()
            except OSError as error:
                why = f"it cannot be started: {error}"
            failures = failures + 1 if time.monotonic() - begin < _SOON_S else 1
            wait_s = _AGAIN_S[min(failures, len(_AGAIN_S)) - 1]
            _LOG.error(
                "the page's process has ended (%s) and restarts in %.0f s; the collector keeps watching",
                why,
                wait_s,
            )
            await asyncio.sleep(wait_s)

    async def _once(self) -> str:
        """Run one process until it ends; why it did."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = self._start(theirs)
        reader, writer = await asyncio.open_connection(sock=ours)
        hearing = asyncio.create_task(self._hear(reader))
        try:
            why = await self._feed(writer, hearing)
        finally:
            hearing.cancel()
            writer.transport.abort()  # the page sees the end of the channel and ends
            await asyncio.shield(asyncio.to_thread(_end, process))
        return why if process.returncode in (0, None) else f"exit code {process.returncode}"

    def _start(self, channel: socket.socket) -> subprocess.Popen[bytes]:
        here = str(Path(__file__).parents[2])
        path = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        numbers = (self.front.socket.fileno(), channel.fileno())
        return subprocess.Popen(
            [sys.executable, "-m", self.module, *map(str, numbers)],
            pass_fds=numbers,
            stdin=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": path},
            # Ctrl-C is for the collector, which ends its page by the channel
            start_new_session=True,
        )

    async def _feed(self, writer: asyncio.StreamWriter, hearing: asyncio.Task[None]) -> str:
        writer.transport.set_write_buffer_limits(
            high=0
        )  # `drain` then waits until the page has taken all
        writer.write(frame(msgspec.msgpack.encode(self.front.opening)))
        whole = True
        while not hearing.done():
            self.view.look(time.monotonic(), time.time())
            writer.write(frame(self._snapshot(whole)))
            whole = False
            try:
                await asyncio.wait_for(writer.drain(), _STUCK_S)
            except (asyncio.TimeoutError, TimeoutError):
                return f"it did not read for {_STUCK_S:.0f} s"
            except OSError:
                break
            await asyncio.wait({hearing}, timeout=self.view.core.settings.interval_s)
        return "its channel was closed"

    def _snapshot(self, whole: bool) -> bytes:
        view = self.view
        ranks = view.everything() if whole else view.changes()
        history = None
        if whole or view.now.mono - self._history_at >= _HISTORY_S:
            self._history_at, history = view.now.mono, view.history()
        snapshot = Snapshot(
            now=view.now,
            captures=view.captures,
            concluded=view.concluded,
            whole=whole,
            ranks=ranks,
            history=history,
        )
        return encode(snapshot)

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        """Until the page closes the channel."""
        while (said := await read_frame(reader, MAX_ASK)) is not None:
            self.ask(msgspec.msgpack.decode(said, type=Ask).reason[:200])


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
