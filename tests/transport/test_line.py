"""The line to a collector against one that the test plays: what is sent while it is away, and what
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from hangdoctor.transport import link as lines
from hangdoctor.transport import messages as msg
from hangdoctor.transport.link import Line
from hangdoctor.transport.spool import Spool
from tests.support.ports import free_port


class Ends:
    """A line with some reports in its spool, and the socket at its other end, which is bound later."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.line = Line(
            "a",
            Spool(folder / "spool"),
            lambda: f"tcp://127.0.0.1:{self.port}",
            lambda: None,
            lambda: msg.Hello("a", "n"),
        )
        self.context = zmq.Context()
        self.socket: Any = self.context.socket(zmq.ROUTER)

    def bind(self) -> None:
        self.socket.bind(f"tcp://127.0.0.1:{self.port}")

    def say(self, *messages: msg.FromCollector) -> None:
        for message in messages:
            self.socket.send_multipart([b"a", *msg.encode(message)])

    def heard(self) -> list[msg.FromAgent]:
        found = []
        while self.socket.poll(0):
            found.append(msg.from_agent(self.socket.recv_multipart()[1:]))
        return found


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    ends = Ends(tmp_path)
    yield ends
    ends.context.destroy(linger=0)
    ends.line.context.destroy(linger=0)


def test_a_collector_that_was_long_away_is_greeted_once(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each hello that had been queued meanwhile would be welcomed, and each welcome answered with
    all reports: a flood.
    """
    monkeypatch.setattr(lines, "_HELLO_S", 0.0)

    async def life() -> None:
        ends.line.connect()
        for _ in range(500):
            ends.line.talk()
        monkeypatch.setattr(lines, "_HELLO_S", 2.0)
        ends.bind()
        heard: list[msg.FromAgent] = []
        while not heard:
            await ends.line.read(0.1)
            heard = ends.heard()
        assert len(heard) == 1

    asyncio.run(life())


def test_a_gap_is_mended_once_however_many_reports_lie_behind_it(ends: Ends) -> None:
    async def life() -> None:
        ends.bind()
        for _ in range(60):
            ends.line.put(msg.Report(0, 0, 0.0))
        ends.line.connect()
        heard: list[msg.FromAgent] = []

        async def listen(count: int) -> None:
            while len(heard) < count:
                await ends.line.read(0.1)
                heard.extend(ends.heard())

        await listen(1)
        ends.say(msg.Welcome(0))
        await listen(61)
        heard.clear()
        ends.say(
            *[msg.Welcome(9)] * 50, msg.Capture("last")
        )  # the tenth was lost on the way: one for each that came behind it
        asked: list[msg.FromCollector] = []
        while not asked:
            asked = await ends.line.read(0.1)
        await listen(51)
        ends.line.send(msg.Bye("done"))
        await listen(52)
        assert [m.seq for m in heard if isinstance(m, msg.Report)] == list(range(10, 61))

    asyncio.run(life())
