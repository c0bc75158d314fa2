"""The server around the core, in this process: what becomes of an error inside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import zmq.asyncio

from hangdoctor.collector.core import Core
from hangdoctor.collector.instructions import Conclude, Instruction, Position, Settings
from hangdoctor.collector.server import CollectorOptions, Server
from hangdoctor.collector.training_events import Said
from hangdoctor.transport import address
from hangdoctor.transport import messages as msg
from hangdoctor.watch.stall_watch import Learned, StallWatch
from hangdoctor.watch.stall_watch import Settings as Bounds


class FakeMemory:
    def load(self) -> tuple[dict[str, Position], Learned]:
        return {}, Learned()

    def writing(
        self, positions: dict[str, Position], learned: Learned, events: Sequence[Said]
    ) -> Callable[[], list[Said]]:
        return list


class FakeHandler:
    def __call__(self, one: Conclude) -> str:
        return "unknown"

    def said(self, events: Sequence[Said]) -> None: ...

    def again(self, last: bool = False) -> None: ...


class StumblingCore(Core):
    """Fails at every Bye."""

    def received(
        self, peer: bytes, frames: list[bytes], now: float, wall: float
    ) -> list[Instruction]:
        if isinstance(msg.from_agent(frames), msg.Bye):
            raise ZeroDivisionError("as an error in the core would")
        return super().received(peer, frames, now, wall)


class DeafServer(Server):
    async def _receive(self, socket: Any) -> None:
        raise ZeroDivisionError("as an error of the library would")


def server(folder: Path, kind: type[Server] = Server) -> Server:
    options = CollectorOptions(folder, f"ipc://{folder}/socket", insecure=True)
    return kind(
        options, StumblingCore(Settings(), StallWatch(Bounds())), FakeMemory(), FakeHandler()
    )


def test_a_message_that_cannot_be_dealt_with_does_not_make_the_collector_deaf(
    tmp_path: Path,
) -> None:
    async def life() -> None:
        collector = server(tmp_path)
        running = asyncio.create_task(collector.run())
        while not address.published(tmp_path):
            await asyncio.sleep(0.01)
        context = zmq.asyncio.Context()
        socket = context.socket(zmq.DEALER)
        socket.connect(collector.address)
        await socket.send_multipart(msg.encode(msg.Bye("x")))
        await socket.send_multipart(msg.encode(msg.Hello("a", "n1")))
        assert isinstance(msg.from_collector(await socket.recv_multipart()), msg.Welcome)
        context.destroy(linger=0)
        collector.stopping.set()
        await running

    asyncio.run(asyncio.wait_for(life(), 60))


def test_a_collector_that_can_hear_no_one_any_more_ends_with_the_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError, match="of the library"):
        asyncio.run(asyncio.wait_for(server(tmp_path, DeafServer).run(), 60))
