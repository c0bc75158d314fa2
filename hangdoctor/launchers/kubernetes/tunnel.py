"""This end of the tunnel to the agent of one pod: ``python -m ... FOLDER ARCHIVE COMMAND``.

Runs the command (`kubectl exec -i`), gives it the archive ("-" for none) and then the job's keys, and
connects the agent to the collector that the job's folder names.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ...errors import WireError
from ...transport import address, keys
from ...transport.stdio_tunnel import MARK, Connections, Kind, Pipe
from ..remote import _prepare

NO_ARCHIVE = "-"
_ALIVE_S = 5.0
_TCP = re.compile(r"tcp://(.+):(\d+)")
_START_S = 60.0  # to unpack and start what runs in the pod


class _NearEnd:
    def __init__(self, folder: Path, pipe: Pipe) -> None:
        self.folder = folder
        self.pipe = pipe
        self.connections = Connections(pipe)

    async def relay(self) -> None:
        """Until the pod's end has gone."""
        while (frame := await self.pipe.receive()) is not None:
            kind, number, data = frame
            if kind is Kind.OPEN:
                await self._open(number)
            elif kind is Kind.DATA:
                await self.connections.take(number, data)
            elif kind is Kind.CLOSE:
                self.connections.close(number)

    async def _open(self, number: int) -> None:
        """Connect to the collector, which may have moved to another port since."""
        match = _TCP.fullmatch(address.published(self.folder))
        try:
            if match is None:
                raise OSError("there is no collector")
            reader, writer = await asyncio.open_connection(match[1], int(match[2]))
        except OSError:
            await self.pipe.send(Kind.CLOSE, number)  # the agent tries again
            return
        self.connections.enter(number, reader, writer)


def _files(folder: Path) -> bytes:
    """What an agent needs: its own pair, and the public half of the collector's."""
    known = keys.load(folder)
    pairs = {"agent.key": known.agent, "collector.key": keys.Pair(known.collector.public, b"")}
    texts = {name: msgspec.json.encode(pair).decode() for name, pair in pairs.items()}
    return msgspec.json.encode(texts)


async def _run(folder: Path, archive: str, command: Sequence[str]) -> int:
    exec_ = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        preexec_fn=lambda: _prepare(set()),
    )
    assert exec_.stdin is not None and exec_.stdout is not None
    if archive != NO_ARCHIVE:
        exec_.stdin.write(Path(archive).read_bytes())
        await exec_.stdin.drain()
    try:
        await asyncio.wait_for(exec_.stdout.readuntil(MARK), _START_S)
    except (asyncio.TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        exec_.stdin.close()
        return await exec_.wait() or 1
    transport = exec_.stdin.transport
    # A descriptor of our own: asyncio closes its own at kubectl's end, while connections may still write.
    pipe = Pipe(exec_.stdout, os.dup(transport.get_extra_info("pipe").fileno()))
    os.set_blocking(pipe.outgoing, True)
    await pipe.send(Kind.FILES, 0, _files(folder))
    relay = asyncio.ensure_future(_NearEnd(folder, pipe).relay())
    while not (await asyncio.wait({relay}, timeout=_ALIVE_S))[0]:
        await pipe.send(Kind.ALIVE)
    return await exec_.wait()


def main(words: Sequence[str]) -> int:
    """Run until the agent ends; its exit code."""
    folder, archive, *command = words
    try:
        return asyncio.run(_run(Path(folder), archive, command))
    except WireError:
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
