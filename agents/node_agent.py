"""The node agent: looks at this node's ranks each second, tells the collector what changed, captures when asked.

It runs until SIGTERM or until its job has gone, keeps what it cannot send, and never runs anything that a message names.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import logging
import os
import platform
import secrets
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import zmq
import zmq.asyncio
from msgspec import Struct, structs

from hangdoctor import messages as msg
from hangdoctor._version import __version__
from hangdoctor.collector import address, keys
from hangdoctor.errors import CollectorError, HangdoctorError, NoRanksFound, WireError
from hangdoctor.readers import boxes, discover
from hangdoctor.readers.node import CaptureOptions, capture_node

from .ranks import Ranks
from .spool import Spool

_LOG = logging.getLogger("hangdoctor.agent")
_HEARTBEAT_S = 2.0  # a report without news
_WINDOW = 64  # reports under way without an acknowledgement
_QUIET_S = 6.0  # without a word from the collector: look for its address again
_HELLO_S = 2.0


class Options(Struct, frozen=True):
    folder: Path | None = None
    collector: str = ""
    insecure: bool = False
    slurm_job: str = ""
    slurm_step: str = ""
    job: str = ""
    node: str = ""
    interval_s: float = 1.0
    linger_s: float = 60.0  # without a rank, after there was one
    patience_s: float = 1800.0  # without a rank from the start; 0 waits for ever
    spool: Path | None = None


class NodeAgent:
    """One agent on this node."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.node = options.node or os.environ.get("SLURMD_NODENAME") or platform.node()
        place = options.spool or _spool_place(options, self.node)
        self.agent, self._lock, place = _take_place(place)
        self.ranks = Ranks(self._wanted)
        self.interval_s = options.interval_s
        self.spool = Spool(place)
        self.context = zmq.asyncio.Context()
        self.socket: Any = None
        self.address = ""
        self.stopping = asyncio.Event()
        self.why = "its job has ended"
        self._welcome = False
        self._sent = 0
        self._heard_at = 0.0
        self._hello_at = -1e9
        self._reported_at = 0.0
        self._told: dict[int, tuple[object, ...]] = {}
        self._capturing: asyncio.Task[None] | None = None
        self._begin = time.monotonic()
        self._alone_since: float | None = None

    def _wanted(self, job: discover.Job) -> bool:
        if self.options.slurm_job:
            ours = any(f.environ.get("SLURM_JOB_ID") == self.options.slurm_job for f in job.ranks)
            step = self.options.slurm_step
            return ours and (not step or any(f.environ.get("SLURM_STEP_ID") == step for f in job.ranks))
        return self.options.job in job.key

    # ----------------------------------------------------------------- life

    async def run(self) -> None:
        """Until SIGTERM, SIGINT or the end of the job."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, f"ended by {signal.Signals(number).name}")
        try:
            while not self.stopping.is_set() and not self._job_over():
                self._connect()
                self._watch()
                self._talk()
                await self._read(self.interval_s)
        finally:
            await self._leave()

    def _stop(self, why: str) -> None:
        self.why = why
        self.stopping.set()

    def _job_over(self) -> bool:
        now = time.monotonic()
        if self.ranks.alive:
            self._alone_since = None
            return False
        if not self.ranks.seen_any:
            return bool(self.options.patience_s) and now - self._begin > self.options.patience_s
        self._alone_since = self._alone_since if self._alone_since is not None else now
        return now - self._alone_since > self.options.linger_s

    async def _leave(self) -> None:
        if self.socket is not None:
            if self._welcome:
                self._send(msg.Bye(self.why))
                with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
                    await asyncio.wait_for(self._settle(), 0.3)
            self.socket.close(linger=100)
        self.context.destroy(linger=100)
        self.ranks.close()
        if len(self.spool) and not self._job_over():
            _LOG.info("%d reports wait in %s for the next agent of this node", len(self.spool), self.spool.folder)
            return
        self.spool.clear()
        with contextlib.suppress(OSError):
            (self.spool.folder / "agent").unlink(missing_ok=True)
            self.spool.folder.rmdir()

    async def _settle(self) -> None:
        """Let the last acknowledgements come in."""
        while len(self.spool):
            self._take(await self.socket.recv_multipart())

    # ----------------------------------------------------------------- the collector

    def _connect(self) -> None:
        """Connect, or connect anew where the collector has moved; ZeroMQ itself mends broken connections."""
        now = time.monotonic()
        if self.socket is not None and now - self._heard_at < _QUIET_S:
            return
        found = address.find(self.options.folder, self.options.collector)
        if not found or (self.socket is not None and found == self.address):
            return
        pairs = None if self.options.insecure else keys.load(self.options.folder or Path())
        address.check(found, self.options.insecure)
        if self.socket is not None:
            self.socket.close(linger=0)
        socket = self.context.socket(zmq.DEALER)
        for option, value in (
            (zmq.LINGER, 0), (zmq.SNDHWM, 1000), (zmq.RCVHWM, 1000), (zmq.MAXMSGSIZE, msg.MAX_SMALL), (zmq.RECONNECT_IVL, 200),
            (zmq.RECONNECT_IVL_MAX, 3000), (zmq.HEARTBEAT_IVL, 5000), (zmq.HEARTBEAT_TIMEOUT, 20_000), (zmq.TCP_KEEPALIVE, 1),
            (zmq.CONNECT_TIMEOUT, 5000),
        ):  # fmt: skip
            socket.setsockopt(option, value)
        socket.setsockopt(zmq.IDENTITY, self.agent.encode())
        if pairs is not None:
            socket.curve_serverkey = pairs.collector.public
            socket.curve_publickey, socket.curve_secretkey = pairs.agent.public, pairs.agent.secret
        socket.connect(found)
        self.socket, self.address = socket, found
        self._welcome, self._hello_at, self._heard_at = False, -1e9, now
        _LOG.info("%s reports to %s", self.node, found)

    def _send(self, message: msg.FromAgent) -> bool:
        """False where the queue is full: the collector is away."""
        if self.socket is None:
            return False
        try:
            self.socket.send_multipart(msg.encode(message), flags=zmq.DONTWAIT)
        except zmq.Again:
            return False
        return True

    def _talk(self) -> None:
        """Say hello until welcome; then send what is waiting, in order, a window at a time."""
        now = time.monotonic()
        if self.socket is None:
            return
        if self._welcome and now - self._heard_at > _QUIET_S:
            self._welcome = False  # what is under way may be lost: ask how far the collector has come
        if not self._welcome:
            if now - self._hello_at >= _HELLO_S:
                self._hello_at = now
                self._send(msg.Hello(self.agent, self.node, self.ranks.job[:200], self.ranks.world_size, __version__))
            return
        for seq, payload in self.spool.after(self._sent):
            if seq > self.spool.oldest + _WINDOW:
                break
            report = msgspec.msgpack.decode(payload, type=msg.Report)
            report.seq, report.oldest = seq, self.spool.oldest
            report.late_s = min(max(0.0, time.monotonic() - report.late_s), 1e8)
            if not self._send(report):
                break
            self._sent = seq

    async def _read(self, seconds: float) -> None:
        """Deal with what the collector says, for one interval or until the end."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self.stopping.is_set():
            waiting = [asyncio.ensure_future(self.stopping.wait())]
            if self.socket is not None:
                waiting.append(asyncio.ensure_future(self.socket.poll(int(left * 1000) + 1)))
            await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for task in waiting:
                task.cancel()
            while self.socket is not None and await self.socket.poll(0):
                self._take(await self.socket.recv_multipart())

    def _take(self, frames: list[bytes]) -> None:
        try:
            message = msg.from_collector(frames)
        except WireError as error:
            _LOG.warning("the collector is not understood: %s", error)
            return
        self._heard_at = time.monotonic()
        if isinstance(message, msg.Welcome):
            self._welcome = True
            self.spool.ack(message.acked)
            self._sent = message.acked
            self._talk()
        elif isinstance(message, msg.Ack):
            self.spool.ack(message.acked)
            self._talk()
        elif isinstance(message, msg.WhoAreYou):
            self._welcome = False
            self._hello_at = -1e9
            self._talk()
        elif isinstance(message, msg.Rejected):
            self._welcome = False
            _LOG.warning("the collector refuses this agent: %s", message.why)
        elif isinstance(message, msg.Level):
            self.interval_s = message.interval_s
        else:
            self._begin_capture(message)

    # ----------------------------------------------------------------- watching and capturing

    def _watch(self) -> None:
        self.ranks.search()
        told = self.ranks.look()
        changed = [r for r in told if self._told.get(r.rank) != _news(r)]
        now = time.monotonic()
        if not changed and now - self._reported_at < _HEARTBEAT_S:
            return
        self._reported_at = now
        self._told = {r.rank: _news(r) for r in told}
        report = msg.Report(0, 0, time.time(), changed, late_s=now)  # replaced by its age when it is sent
        self.spool.put(msgspec.msgpack.encode(report))

    def _begin_capture(self, wanted: msg.Capture) -> None:
        if self._capturing is not None and not self._capturing.done():
            self._send(msg.Declined(wanted.id, "a capture is under way on this node"))
            return
        self._capturing = asyncio.create_task(self._capture(wanted))

    async def _capture(self, wanted: msg.Capture) -> None:
        options = CaptureOptions(
            job=self.options.job, slurm_job=self.options.slurm_job, slurm_step=self.options.slurm_step,
            settle_s=min(wanted.settle_s, 60.0), timeout_s=min(max(wanted.timeout_s, 0.5), 120.0), keep_raw=False,
        )  # fmt: skip
        try:
            body = await asyncio.wait_for(
                asyncio.to_thread(_captured, options, self.node, int(wanted.keep_ops)), options.timeout_s + 1.0
            )
            answer = msg.Captured(wanted.id, body)
        except NoRanksFound as error:
            answer = msg.Captured(wanted.id, error=str(error)[:300], no_ranks=True)
        except HangdoctorError as error:
            answer = msg.Captured(wanted.id, error=str(error)[:300])
        except (asyncio.TimeoutError, TimeoutError):
            answer = msg.Captured(wanted.id, error=f"the capture did not end within {options.timeout_s:.0f} s")
        except Exception as error:
            _LOG.exception("the capture failed")
            answer = msg.Captured(wanted.id, error=f"the capture failed: {type(error).__name__}: {error}"[:300])
        self._send(answer)


def _spool_place(options: Options, node: str) -> Path:
    """One place for each job's folder and node: the next agent finds what a killed one has left."""
    key = hashlib.blake2b(f"{options.folder}|{options.collector}|{node}".encode(), digest_size=8).hexdigest()
    return Path(tempfile.gettempdir()) / f"hangdoctor-agents-{os.getuid()}" / key


def _take_place(place: Path) -> tuple[str, int, Path]:
    """(id of this agent, its lock, its place): those of a killed agent where one left them, a new place where one lives there."""
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


def _news(rank: msg.RankNow) -> tuple[object, ...]:
    """What makes a report worth sending: everything but the age, unless the age says that there was progress."""
    fields = structs.astuple(rank)
    since = time.monotonic() - rank.idle_s
    return (*fields[:2], *fields[3:], round(since, 1) if not rank.over else 0)


def _captured(options: CaptureOptions, node: str, keep_ops: int) -> bytes:
    """Runs in a thread: capture this node and pack it."""
    capture = capture_node(options, node)
    for rank in capture.ranks:
        if rank.ops is not None:
            rank.ops = boxes.trim(rank.ops, keep_ops)
    return msg.pack_capture(capture)


def main(options: Options) -> None:
    """Run an agent in this process; ends within a second of SIGTERM, whatever a capture does.

    Raises:
        CollectorError: nothing says where the collector is, or the keys cannot be read.
    """
    logging.basicConfig(level=logging.INFO, format="hangdoctor agent: %(message)s", stream=sys.stderr)
    if options.folder is None and not (options.collector or os.environ.get("HANGDOCTOR_COLLECTOR")):
        raise CollectorError("nothing says where the collector is", "Name its folder with --folder DIR.")

    async def whole_life() -> None:
        await NodeAgent(options).run()
        sys.stderr.flush()
        if any(t.name.startswith("asyncio") for t in _threads()):
            os._exit(0)  # a capture in a thread would hold the end up until its deadline

    asyncio.run(whole_life())


def _threads() -> list[Any]:
    import threading

    return threading.enumerate()
