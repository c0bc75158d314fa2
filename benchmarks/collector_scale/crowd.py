"""Collectors below the first, simulated with all of their nodes: real sockets and keys, one for
each thousand nodes or so.

What the first collector gets is what it gets of real ones, so that it can be measured with more
nodes than a machine holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq
import zmq.asyncio

from hangdoctor.transport import address, keys
from hangdoctor.transport import messages as msg

_NODES = 500  # in one message
_REPORT_S = 1.0
_STANDS_S = 2.0  # as a real one, when there is no news


class Crowd:
    """Collectors `s0`, `s1` ... of these nodes; `news` says where a node's ranks are, `bodies` are
    the answers to a capture.
    """

    def __init__(
        self,
        folder: Path,
        nodes: list[int],
        collectors: int,
        world: int,
        news: Callable[[int, int], list[msg.RankNow]],
        bodies: dict[int, bytes],
    ) -> None:
        self.folder, self.world, self.news, self.bodies = folder, world, news, bodies
        self.parts = [nodes[n::collectors] for n in range(collectors)]
        self.capture_s = 0.0  # beside the time between the samples, until a node's answer is ready
        self.asked_at = self.answered_at = 0.0
        self.answered = self.bytes = 0
        self.stands = False
        self.context = zmq.asyncio.Context()
        self._seq = [0] * collectors

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            await asyncio.gather(*(self._collector(n) for n in range(len(self.parts))))
        finally:
            self.context.destroy(linger=0)

    async def _collector(self, number: int) -> None:
        made = keys.load(self.folder)
        socket: Any = self.context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.setsockopt(zmq.IDENTITY, f"crowd{number}".encode())
        socket.curve_serverkey = made.collector.public
        socket.curve_publickey, socket.curve_secretkey = made.agent.public, made.agent.secret
        socket.connect(address.published(self.folder))
        hello = msg.Hello(f"crowd{number}", f"s{number}", relay=True)
        await socket.send_multipart(msg.encode(hello))
        reporting = asyncio.create_task(self._report(socket, number))
        answers: set[asyncio.Task[None]] = set()
        try:
            while True:
                message = msg.from_collector(await socket.recv_multipart())
                if isinstance(message, msg.Capture):
                    self.asked_at = self.asked_at or time.monotonic()
                    answers.add(asyncio.create_task(self._answer(socket, number, message)))
        finally:
            reporting.cancel()
            for task in answers:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reporting

    async def _answer(self, socket: Any, number: int, wanted: msg.Capture) -> None:
        await asyncio.sleep(wanted.settle_s + self.capture_s)
        for node in self.parts[number]:
            answer = msg.Captured(wanted.id, self.bodies[node], node=f"n{node}")
            await socket.send_multipart(msg.encode(answer))
            self.bytes += len(answer.body)
            self.answered += 1
        self.answered_at = time.monotonic()

    async def _report(self, socket: Any, number: int) -> None:
        await asyncio.sleep(number / len(self.parts))
        nodes = self.parts[number]
        tick = 0
        while True:
            tick += 1
            for first in range(0, len(nodes), _NODES):
                self._seq[number] += 1
                some = [
                    msg.NodeNews(
                        f"n{node}",
                        "slurm:1.0",
                        self.world,
                        ranks=[] if self.stands else self.news(node, tick),
                    )
                    for node in nodes[first : first + _NODES]
                ]
                await socket.send_multipart(msg.encode(msg.Relayed(self._seq[number], 1, some)))
            await asyncio.sleep(_STANDS_S if self.stands else _REPORT_S)
