"""Moves bytes between the agents and the core: a ROUTER socket, its keys, and the clock."""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401 - asyncio loads it with its first use, and a flood may have taken all files by then
import logging
import os
import secrets
import signal
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import zmq
import zmq.asyncio
from msgspec import Struct

from ..errors import CollectorError, HangdoctorError
from ..text.ranges import number_in
from ..transport import address, keys
from ..transport.messages import MAX_CAPTURE, MAX_SMALL, FromCollector, encode
from ..watch.stall_watch import Learned
from .core import Core
from .gate import Gate
from .handshake_limit import BUSY_S, PERIOD_S, Crowd
from .instructions import Conclude, Instruction, Log, Position, Remember, Send
from .operator_requests import TraceRequests
from .relay import Relay
from .training_events import Said
from .uplink import Uplink

_AGAIN_S = 5.0
_GOODBYE_S = 1.5  # for agents that are told to end
_MOST_SAID = 1000  # events of the training
_BATCH = 500  # messages between two readings of the clock
_OPTIONS = {
    zmq.MAXMSGSIZE: MAX_CAPTURE + MAX_SMALL,
    zmq.RCVHWM: 2000,
    zmq.SNDHWM: 200,
    zmq.ROUTER_HANDOVER: 1,
    zmq.HEARTBEAT_IVL: 5000,
    zmq.HEARTBEAT_TIMEOUT: 20_000,
    zmq.HANDSHAKE_IVL: 10_000,
    zmq.BACKLOG: 4096,
    zmq.TCP_KEEPALIVE: 1,
}
_LOG = logging.getLogger("hangdoctor.collector")


class Memory(Protocol):
    """What outlives the collector."""

    def load(self) -> tuple[dict[str, Position], Learned]:
        """What a collector before this one has kept; empty where there was none."""

    def writing(
        self, positions: dict[str, Position], learned: Learned, events: Sequence[Said]
    ) -> Callable[[], list[Said]]:
        """What keeps them as they are now, and returns the events that were not kept before: called
        in a thread, where a lock or a slow disk blocks nothing else.
        """


class CollectorOptions(Struct, frozen=True):
    """Where a collector listens, and when it ends."""

    folder: Path
    bind: str = ""  # "" is a free port on all interfaces
    insecure: bool = False
    for_s: float = 0.0  # end after N seconds; 0 never
    lonely_s: float = 0.0  # end when the last agent has left, after N seconds; 0 never
    dismiss: bool = False  # at the end tell the agents that no one will come back
    # The job's folder, where it is another one: keys are read there and not made.
    keys_from: Path | None = None


class Handler(Protocol):
    """What becomes of a capture, and of events of the training. All run in a thread."""

    def __call__(self, one: Conclude) -> str:
        """Diagnose, keep, act; returns the status."""

    def said(self, events: Sequence[Said]) -> None:
        """The training has said this: log it and act."""

    def again(self, last: bool = False) -> None:
        """Called now and then, and at the end: try once more what could not be done."""


class Server:
    """One collector in this process."""

    def __init__(
        self,
        options: CollectorOptions,
        core: Core,
        memory: Memory,
        conclude: Handler,
        uplink: Uplink | None = None,
    ) -> None:
        self.options = options
        self.core = core
        self.memory = memory
        self.conclude = conclude
        self.uplink = uplink
        self.traces = TraceRequests(options.folder)
        self.context = zmq.asyncio.Context()
        self.gate: Gate | None = None
        self.address = ""
        self.stopping = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._keeping: asyncio.Task[None] | None = None
        self._acks: dict[bytes, Send] = {}  # that wait until what they acknowledge is kept
        self._said: list[Said] = []  # events that the disk did not take
        self._failure: BaseException | None = None
        self._lonely_since: float | None = None
        self._again_at = time.monotonic() + _AGAIN_S

    # ----------------------------------------------------------------- life

    async def run(self) -> None:
        """Until SIGTERM, SIGINT, SIGHUP, or the end that the options name.

        Raises:
            CollectorError: the address is taken, or the folder cannot be used.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup
                loop.add_signal_handler(number, self.stopping.set)
        loop.add_signal_handler(signal.SIGUSR1, lambda: self.core.ask("requested by SIGUSR1"))
        socket = self._open()
        _LOG.info("listening on %s, folder %s", self.address, self.options.folder)
        always = [self._begin(work) for work in self._always(socket)]
        try:
            await self._tick(socket)
        finally:
            if self.options.dismiss:
                await self._dismiss(socket)
            for task in always:
                task.cancel()
            if self.uplink is not None:
                await self.uplink.line.leave("it was stopped")
            await asyncio.to_thread(self.conclude.again, True)
            await self._keep()
            await self._finish()
            socket.close(linger=200)
            if self.gate is not None:
                self.gate.socket.close(linger=0)
            self.context.destroy(linger=200)
        if self._failure is not None:
            raise self._failure

    async def _dismiss(self, socket: Any) -> None:
        """Tell the agents that no one will come back, and hear their goodbyes: one that is just
        connecting again has not heard it, and is told when it speaks.
        """
        self._carry_out(socket, self.core.dismiss())
        end = time.monotonic() + _GOODBYE_S
        while not self.core.deserted() and time.monotonic() < end:
            await asyncio.sleep(0.05)

    def _always(self, socket: Any) -> Iterator[Coroutine[Any, Any, None]]:
        """What runs beside the tick until the end."""
        yield self._receive(socket)
        if self.gate is not None:
            yield self.gate.run()
        if self.address.startswith("tcp://"):
            port = int(self.address.rpartition(":")[2])
            yield self._thin_out(Crowd(port))
        if self.uplink is not None and isinstance(self.core, Relay):
            relay = self.core

            def obey(message: FromCollector) -> None:
                self._carry_out(socket, relay.told(message, time.monotonic()))

            yield self.uplink.run(obey)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """What is to run always has failed: without it the collector would only look alive."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = self._failure or error
            self.stopping.set()

    def _open(self) -> Any:
        folder = keys.make_folder(self.options.folder)
        socket = self.context.socket(zmq.ROUTER)
        for option, value in _OPTIONS.items():
            socket.setsockopt(option, value)
        if not self.options.insecure:
            other = self.options.keys_from
            pairs = keys.load(other) if other else keys.make(folder)
            self.gate = Gate(self.context, pairs.agent.public)
            socket.curve_server = True
            socket.curve_publickey = pairs.collector.public
            socket.curve_secretkey = pairs.collector.secret
            socket.zap_domain = b"hangdoctor"
        self.address = self._bind(socket)
        address.publish(folder, self.address)
        return socket

    def _bind(self, socket: Any) -> str:
        """Bind where told, else where this folder's collector was before, else to a free port."""
        anywhere = "tcp://127.0.0.1:*" if self.options.insecure else "tcp://*:*"
        wanted = self.options.bind or anywhere
        tries = [wanted]
        before = address.published(self.options.folder).rpartition(":")[2]
        if wanted.endswith(":*") and number_in(before) > 0:
            tries.insert(0, wanted.replace(":*", f":{before}"))
        trouble: zmq.ZMQError | None = None
        for endpoint in tries:
            try:
                socket.bind(endpoint)
            except zmq.ZMQError as error:
                trouble = error
                continue
            bound = socket.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode()
            return str(bound.replace("0.0.0.0", address.own_host()))
        raise CollectorError(
            f"cannot listen on {wanted}: {trouble}",
            "Is another collector running? Choose another address: --bind",
        )

    # ----------------------------------------------------------------- work

    async def _receive(self, socket: Any) -> None:
        handled = 0
        while True:
            peer, *frames = await socket.recv_multipart()
            try:
                out = self.core.received(peer, frames, time.monotonic(), time.time())
                self._carry_out(socket, out)
            except Exception:  # one peer must not end it
                _LOG.exception("a message could not be processed and is dropped")
            handled += 1
            if handled % _BATCH == 0:
                await asyncio.sleep(0)  # a flood must not keep the clock from ticking

    async def _tick(self, socket: Any) -> None:
        begin = time.monotonic()
        while not self.stopping.is_set():
            now = time.monotonic()
            self._carry_out(socket, self.core.tick(now, time.time()))
            self._look_around(socket, now)
            if (self.options.for_s and now - begin > self.options.for_s) or self._lonely(now):
                break
            try:
                await asyncio.wait_for(self.stopping.wait(), self.core.rest_s(now))
            except (asyncio.TimeoutError, TimeoutError):
                continue
        await self._finish()

    async def _finish(self) -> None:
        """A verdict that is being made is worth the wait."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=20)

    async def _thin_out(self, crowd: Crowd) -> None:
        shut = 0
        while True:
            await asyncio.sleep(BUSY_S if shut else PERIOD_S)
            if shut := crowd.thin_out(len(self.core.nodes) + len(self.core.relays)):
                _LOG.warning(
                    "%d connections without a handshake were closed (%d so far)", shut, crowd.shut
                )

    def _look_around(self, socket: Any, now: float) -> None:
        """What else is due with a tick."""
        if self.uplink is not None:
            self.uplink.pump()
            if self.uplink.met_anew() and isinstance(self.core, Relay):
                self.core.tell_all()
        try:
            wanted = self.traces.fresh()
        except HangdoctorError as error:
            _LOG.warning("%s", error)
            wanted = None
        if wanted is not None:
            _LOG.info("call traces are switched %s", "on" if wanted.on else "off")
            self._carry_out(socket, self.core.switch_trace(wanted))
        if now >= self._again_at:
            self._again_at = now + _AGAIN_S
            self._add(asyncio.to_thread(self.conclude.again))

    def _lonely(self, now: float) -> bool:
        nodes = self.core.nodes.values()
        if not self.options.lonely_s or not nodes or not all(n.left for n in nodes):
            self._lonely_since = None
            return False
        self._lonely_since = self._lonely_since if self._lonely_since is not None else now
        return now - self._lonely_since > self.options.lonely_s

    def _carry_out(self, socket: Any, instructions: Sequence[Instruction]) -> None:
        for one in instructions:
            if isinstance(one, Send):
                try:
                    socket.send_multipart([one.peer, *encode(one.message)], flags=zmq.DONTWAIT)
                except zmq.ZMQError as error:  # a peer that does not read; it will ask again
                    _LOG.debug("not sent: %s", error)
            elif isinstance(one, Log):
                _LOG.info("%s", one.text)
            elif isinstance(one, Remember):
                self._acks.update({ack.peer: ack for ack in one.acks})
                if self._keeping is None or self._keeping.done():
                    self._keeping = self._add(self._remember(socket))
            else:
                self._add(self._conclude(socket, one))

    def _add(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Work that has an end, and is waited for at the collector's."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _remember(self, socket: Any) -> None:
        """Keep, then acknowledge; one at a time, and while one waits for the disk, the next ones
        become one.
        """
        while self._acks:
            acks, self._acks = self._acks, {}
            if await self._keep():
                self._carry_out(socket, list(acks.values()))

    async def _keep(self) -> bool:
        """Write positions, rhythm and events of now; act for events that were not there before."""
        said = [*self._said, *self.core.events.fresh()][-_MOST_SAID:]
        self._said = []
        core = self.core
        write = self.memory.writing(core.positions, core.watchdog.learned, said)
        try:
            fresh = await asyncio.to_thread(write)
        except HangdoctorError as error:
            _LOG.error("%s", error)
            self._said = said
            return False
        if fresh:
            core.counters.events += len(fresh)
            self._add(self._act(fresh))
        return True

    async def _act(self, fresh: Sequence[Said]) -> None:
        try:
            await asyncio.to_thread(self.conclude.said, fresh)
        except Exception:  # one bad event must not end it
            _LOG.exception("events of the training were not acted on")

    async def _conclude(self, socket: Any, one: Conclude) -> None:
        try:
            status = await asyncio.to_thread(self.conclude, one)
        except HangdoctorError as error:
            _LOG.error("%s %s", error, error.help)
            status = "unknown"
        except Exception:  # one bad capture must not end it
            _LOG.exception("the diagnosis failed; the collector keeps watching")
            status = "unknown"
        self._carry_out(socket, self.core.concluded(one.id, status, time.monotonic()))


def session_name() -> str:
    """A name for this run of the collector, in the ids of its captures: no answer to an earlier run
    fits it.
    """
    return f"{os.getpid()}-{secrets.token_hex(4)}"
