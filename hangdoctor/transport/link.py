"""The line to a collector, of an agent or of a collector below it: hello until welcome, then
reports in order.

Reports lie in a spool until they are acknowledged; while the collector is away nothing else happens
to them.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import zmq

from ..errors import CollectorError, WireError
from . import address, keys
from . import messages as msg
from .spool import Spool

_LOG = logging.getLogger("hangdoctor.line")
_WINDOW = 64  # reports under way without an acknowledgement
_QUIET_S = 6.0  # without a word from the collector: look for its address again
_HELLO_S = 2.0
_OPTIONS = {
    zmq.LINGER: 0,
    zmq.SNDHWM: 1000,
    zmq.RCVHWM: 1000,
    zmq.MAXMSGSIZE: msg.MAX_SMALL,
    zmq.CONNECT_TIMEOUT: 5000,
    zmq.RECONNECT_IVL: 200,
    zmq.RECONNECT_IVL_MAX: 3000,
    zmq.HEARTBEAT_IVL: 5000,
    zmq.HEARTBEAT_TIMEOUT: 20_000,
    zmq.TCP_KEEPALIVE: 1,
    zmq.IMMEDIATE: 1,  # nothing is queued for a collector that is away: it lies in the spool
}
Numbered = msg.Report | msg.Relayed
_decoder: msgspec.msgpack.Decoder[Numbered] = msgspec.msgpack.Decoder(Numbered)
_encoder = msgspec.msgpack.Encoder()


class Line:
    """One DEALER socket, its spool, and how far the collector has come."""

    def __init__(
        self,
        name: str,
        spool: Spool,
        find: Callable[[], str],
        pairs: Callable[[], keys.Keys | None],
        hello: Callable[[], msg.Hello],
    ) -> None:
        """`find` gives the collector's address, "" while there is none; `pairs` the job's keys,
        None for plaintext.
        """
        self.name = name
        self.spool = spool
        self.find, self.pairs, self.hello = find, pairs, hello
        self.context = zmq.Context()
        self.socket: zmq.Socket[bytes] | None = None
        self.wake = asyncio.Event()
        self.woken = False
        self.address = ""
        self._keys: keys.Keys | None = None
        self.welcome = False
        # Conversations so far: a collector that begins another one may know nothing of this side
        self.began = 0
        self._sent = 0
        self._again = (-1, -1e9)  # from where all was sent again last, and when
        self._heard_at = 0.0
        self._hello_at = -1e9

    def connect(self) -> None:
        """Connect, or connect anew where the collector has moved; ZeroMQ itself mends broken
        connections.
        """
        now = time.monotonic()
        if self.socket is not None and now - self._heard_at < _QUIET_S:
            return
        found = self.find()
        if not found:
            return
        try:
            pairs = self.pairs()
        except CollectorError:
            if self.socket is None:
                raise
            # They are being made anew, or their file system is away: the line of before may still
            # come back
            return
        if self.socket is not None and (found, pairs) == (self.address, self._keys):
            return
        address.check(found, pairs is None)
        if self.socket is not None:
            self._hang_up(0)
        socket = self._new_socket(pairs)
        try:
            socket.connect(found)
        except zmq.ZMQError as error:
            socket.close(linger=0)
            raise CollectorError(
                f"cannot connect to {found}: {error}", "For example tcp://node1:7511"
            ) from error
        # ZeroMQ's descriptor signals changes only; whoever waits reads until there is nothing more
        # (`read`).
        asyncio.get_running_loop().add_reader(int(socket.getsockopt(zmq.FD)), self.wake.set)
        self.socket, self.address, self._keys = socket, found, pairs
        self.welcome, self._hello_at, self._heard_at = False, -1e9, now
        _LOG.info("%s reports to %s", self.hello().node, found)

    def _new_socket(self, pairs: keys.Keys | None) -> zmq.Socket[bytes]:
        socket = self.context.socket(zmq.DEALER)
        for option, value in _OPTIONS.items():
            socket.setsockopt(option, value)
        socket.setsockopt(zmq.IDENTITY, self.name.encode())
        if pairs is not None:
            socket.curve_serverkey = pairs.collector.public
            socket.curve_publickey, socket.curve_secretkey = pairs.agent.public, pairs.agent.secret
        return socket

    def put(self, report: Numbered) -> None:
        """Keep a report; its `late_s` must be the monotonic time of now, and becomes its age when
        it is sent.
        """
        self.spool.put(_encoder.encode(report))

    def send(self, message: msg.FromAgent) -> bool:
        """False where the queue is full or there is no line: the collector is away."""
        if self.socket is None:
            return False
        try:
            self.socket.send_multipart(msg.encode(message), flags=zmq.DONTWAIT)
        except zmq.Again:
            return False
        self.wake.set()  # sending may have used up the news of something that came
        return True

    def introduce(self) -> None:
        """Say hello anew with the next `talk`: what it says has changed."""
        self.welcome, self._hello_at = False, -1e9

    def talk(self) -> None:
        """Say hello until welcome; then send what is waiting, in order, a window at a time."""
        now = time.monotonic()
        if self.socket is None:
            return
        if self.welcome and now - self._heard_at > _QUIET_S:
            # What is under way may be lost: ask how far the collector has come.
            self.welcome = False
        if not self.welcome:
            if now - self._hello_at >= _HELLO_S and self.send(self.hello()):
                self._hello_at = now
            return
        for seq, payload in self.spool.after(self._sent):
            if seq > self.spool.oldest + _WINDOW:
                break
            report = _decoder.decode(payload)
            report.seq, report.oldest = seq, self.spool.oldest
            report.late_s = min(max(0.0, time.monotonic() - report.late_s), 1e8)
            if not self.send(report):
                break
            self._sent = seq

    async def read(self, seconds: float) -> list[msg.FromCollector]:
        """What the collector says within one interval, or until `wake` is set; what concerns the
        line is dealt with.
        """
        end = time.monotonic() + seconds
        self.woken = False
        while True:
            self.wake.clear()
            found = self.drain()
            left = end - time.monotonic()
            if found or left <= 0:
                return found
            with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
                await asyncio.wait_for(self.wake.wait(), left)
                if self.woken:
                    return self.drain()

    def drain(self) -> list[msg.FromCollector]:
        """What has come, without waiting."""
        found = []
        while self.socket is not None:
            try:
                frames = self.socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                break
            message = self.take(frames)
            if message is not None:
                found.append(message)
        if not self.welcome:
            self.talk()  # a connection has come about, perhaps
        return found

    def rouse(self) -> None:
        """End a `read` that waits: there is something else to do."""
        self.woken = True
        self.wake.set()

    def take(self, frames: list[bytes]) -> msg.FromCollector | None:
        """Deal with what concerns the line; anything else comes back."""
        try:
            message = msg.from_collector(frames)
        except WireError as error:
            _LOG.warning("a message of the collector could not be read: %s", error)
            return None
        self._heard_at = time.monotonic()
        if isinstance(message, msg.Welcome):
            self._welcomed(message.acked)
        elif isinstance(message, msg.Ack):
            self.spool.ack(message.acked)
            self.talk()
        elif isinstance(message, msg.WhoAreYou):
            # Else a hello is under way: one is enough for all the reports that it overtook.
            if self.welcome:
                self.introduce()
            self.talk()
        elif isinstance(message, msg.Rejected):
            self.welcome = False
            _LOG.warning("the collector refused this agent: %s", message.why)
        else:
            return message
        return None

    def _welcomed(self, acked: int) -> None:
        """The answer to hello, or to a report behind a gap: go on from there."""
        now = time.monotonic()
        first, self.welcome = not self.welcome, True
        self.began += first
        self.spool.ack(acked)
        # Every report behind a gap is answered so. Going back for each of them would send the
        # window as many times: a flood.
        if first or acked != self._again[0] or now - self._again[1] >= _HELLO_S:
            self._again = (acked, now)
            self._sent = acked
        self.talk()

    async def leave(self, why: str) -> None:
        """Say goodbye and let the last acknowledgements come in."""
        if self.socket is not None:
            if self.welcome:
                self.talk()
                self.send(msg.Bye(why))
                end = time.monotonic() + 0.3
                while len(self.spool) and time.monotonic() < end:
                    await self.read(0.05)
            self._hang_up(100)
        self.context.destroy(linger=100)

    def _hang_up(self, linger_ms: int) -> None:
        socket, self.socket = self.socket, None
        if socket is not None:
            asyncio.get_running_loop().remove_reader(int(socket.getsockopt(zmq.FD)))
            socket.close(linger=linger_ms)


def take_place(place: Path) -> tuple[str, int, Path]:
    """(id, its lock, its place) for a spool: those of a killed predecessor where one left them, a
    new place where one lives there.
    """
    fresh = secrets.token_hex(8)
    try:
        keys.make_folder(place.parent)
        keys.make_folder(place)
        lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, CollectorError):
        return fresh, -1, place  # the spool then stays in memory
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return fresh, -1, place.with_name(f"{place.name}-{fresh}")
    known = place / "agent"
    try:
        told = known.read_text().strip()
        if len(told) == 16 and told.isalnum():
            return told, lock, place
        known.write_text(fresh)
    except FileNotFoundError:
        with contextlib.suppress(OSError):
            known.write_text(fresh)
    except OSError:
        pass  # as above
    return fresh, lock, place
