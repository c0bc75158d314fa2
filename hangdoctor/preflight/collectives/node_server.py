"""The node's side: takes orders on standard input, runs ranks, and leaves nothing behind.

It ends, and its ranks with it, when its input ends, when no sign of life has come for a while, and
on SIGTERM, SIGINT and SIGHUP. A rank ends at its own deadline, and when this process dies.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from types import FrameType

import msgspec

from ...readers import discover
from ...text.job_names import short_job
from ...text.plural import count
from .. import gpu
from . import addresses, fabric, rank_work
from .words import SILENCE_S, NodeSetup, Order, Word, line, order_in

_TICK_S = 0.2
_PR_SET_PDEATHSIG = 1
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Input:
    """Orders from a pipe, without waiting."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.rest = b""
        self.heard = time.monotonic()
        self.closed = False

    @property
    def ended(self) -> bool:
        """Whether the other side has gone, or is silent for too long."""
        return self.closed or time.monotonic() - self.heard > SILENCE_S

    def poll(self, patience: float) -> list[Order]:
        """The orders that came within that many seconds."""
        if self.closed or not select.select([self.fd], [], [], patience)[0]:
            return []
        data = os.read(self.fd, 1 << 16)
        if not data:
            self.closed = True
            return []
        self.heard = time.monotonic()
        *lines, self.rest = (self.rest + data).split(b"\n")
        return [order for order in map(order_in, lines) if order is not None]


class Rank(msgspec.Struct):
    """A process of ours and the pipe that it speaks through."""

    pid: int
    fd: int
    trial: int
    rank: int
    deadline: float
    rest: bytes = b""


def serve(setup: NodeSetup) -> None:
    """Take part until the other side ends."""
    for number in _SIGNALS:
        signal.signal(number, _leave)
    orders = Input(sys.stdin.fileno())
    _say(Word("here", text=fabric.of_host()))
    busy = "" if setup.beside else _running_ranks()
    if busy:
        _say(Word("busy", text=busy))
        return
    try:
        devices = _import_torch(orders)
    except ImportError as error:
        _say(Word("refused", text=f"torch cannot be imported by {sys.executable}: {error}"))
        return
    chosen = [d for d in setup.devices if d < devices] or list(range(devices)) or [-1]
    server = _Server(chosen)
    _say(
        Word(
            "ready",
            text=",".join(addresses.own()),
            values={"ranks": float(len(chosen)), "gpus": float(devices)},
        )
    )
    try:
        server.run(orders)
    finally:
        server.end_all()


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _say(word: Word) -> None:
    os.write(1, line(word))


def _running_ranks() -> str:
    """Ranks on this host, or GPUs in use: a test would disturb them. "" where there is nothing."""
    jobs = discover.find_jobs()
    if jobs:
        said = [f"{count(len(j.ranks), 'rank')} of {short_job(j.key)}" for j in jobs[:3]]
        return f"{', '.join(said)}, pid {jobs[0].ranks[0].pid}"
    gpus = gpu.Gpus()
    gpu.read(gpus)
    used = [f"GPU {g.index}: {g.used_mb} MB" for g in gpus.rows if g.used_mb > gpu.BUSY_MB]
    return f"GPU memory in use ({', '.join(used)})" if used else ""


def _import_torch(orders: Input) -> int:
    """As `rank_work.load`; a slow file system does not keep us here when no one waits any more."""

    def look(number: int, frame: FrameType | None) -> None:
        orders.poll(0)
        if orders.ended:
            os._exit(0)  # there is no rank yet

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, 1.0, 1.0)
    try:
        return rank_work.load()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class _Server:
    def __init__(self, devices: list[int]) -> None:
        self.devices = devices
        self.ranks: list[Rank] = []

    def run(self, orders: Input) -> None:
        while not orders.ended:
            for order in orders.poll(0 if self.ranks else _TICK_S):
                self._obey(order)
            self._listen()
            self._watch()

    def _obey(self, order: Order) -> None:
        if order.what == "stop":
            self._end([r for r in self.ranks if r.trial == order.trial])
            return
        if order.what in ("device", "host", "join"):
            known = addresses.first_known(order.address)
            order = msgspec.structs.replace(order, address=known)
            for place, device in enumerate(self.devices):
                # Others join where rank 0 listens, which it has not said yet.
                if order.what != "join" or order.first_rank or place:
                    self._start(order, order.first_rank + place, device)
                if order.what == "host":
                    return

    def _start(self, order: Order, rank: int, device: int) -> None:
        reads, writes = os.pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(reads)
            _be_a_rank(order, rank, device, writes, parent=parent)
        os.close(writes)
        os.set_blocking(reads, False)
        deadline = time.monotonic() + order.seconds
        self.ranks.append(Rank(pid, reads, order.trial, rank, deadline=deadline))

    def _listen(self) -> None:
        fds = {rank.fd: rank for rank in self.ranks}
        if not fds:
            return
        for fd in select.select(list(fds), [], [], _TICK_S / 4)[0]:
            rank = fds[fd]
            data = os.read(fd, 1 << 16)
            if not data:
                self._end([rank])
                continue
            *lines, rank.rest = (rank.rest + data).split(b"\n")
            for text in lines:
                os.write(1, text + b"\n")

    def _watch(self) -> None:
        now = time.monotonic()
        late = [rank for rank in self.ranks if now > rank.deadline]
        for rank in late:
            _say(Word("late", rank.trial, rank.rank))
        self._end(late)

    def _end(self, ranks: list[Rank]) -> None:
        """SIGKILL: a rank in a collective obeys nothing else. One in uninterruptible I/O stays, and
        ends when the kernel lets it.
        """
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank.pid, signal.SIGKILL)
            os.close(rank.fd)
            self.ranks.remove(rank)
        end = time.monotonic() + 1.0
        left = {rank.pid for rank in ranks}
        while left and time.monotonic() < end:
            left = {pid for pid in left if os.waitpid(pid, os.WNOHANG)[0] == 0}
            if left:
                time.sleep(0.01)

    def end_all(self) -> None:
        self._end(list(self.ranks))


def _be_a_rank(order: Order, rank: int, device: int, fd: int, *, parent: int) -> None:
    """In the forked process; does not return."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nothing, standard)
        rank_work.run(order, rank, device, lambda word: _write(fd, word))
    finally:
        os._exit(0)


def _write(fd: int, word: Word) -> None:
    os.write(fd, line(word))
