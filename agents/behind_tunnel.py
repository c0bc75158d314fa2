"""The agent in a pod: its collector is at the other end of its standard input and output.

Started as ``python -m hangdoctor.agents.behind_tunnel WORDS`` by `kubectl exec -i`; it ends with its
agent, or when the other end has gone, and leaves nothing.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hangdoctor.transport.keys import make_folder, write_private
from hangdoctor.transport.stdio_tunnel import MARK, Connections, Kind, Pipe, reader_of

_SILENT_S = 60.0  # without a word from the other end, which says every few seconds that it is there
_END_S = 8.0  # for the agent to end


class _PodEnd:
    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self.connections = Connections(pipe)
        self.number = 0

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A connection of the agent."""
        self.number += 1
        await self.pipe.send(Kind.OPEN, self.number)
        self.connections.enter(self.number, reader, writer)

    async def relay(self) -> None:
        """Until the other end has gone."""
        while True:
            try:
                frame = await asyncio.wait_for(self.pipe.receive(), _SILENT_S)
            except asyncio.TimeoutError:
                return
            if frame is None:
                return
            kind, number, data = frame
            if kind is Kind.DATA:
                await self.connections.take(number, data)
            elif kind is Kind.CLOSE:
                self.connections.close(number)


async def _run(words: Sequence[str], folder: Path) -> int:
    pipe = Pipe(await reader_of(0), 1)
    os.write(1, MARK)
    first = await asyncio.wait_for(pipe.receive(), _SILENT_S)
    if first is None or first[0] is not Kind.FILES:
        return 1
    keys = make_folder(folder / "keys")
    for name, data in msgspec.json.decode(first[2], type=dict[str, str]).items():
        write_private(keys / Path(name).name, data.encode())
    end = _PodEnd(pipe)
    server = await asyncio.start_server(end.accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    to = ["--folder", str(folder), "--collector", f"tcp://127.0.0.1:{port}"]
    to += ["--spool", str(folder / "spool")]
    # Standard output belongs to the tunnel.
    agent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "hangdoctor",
        *words,
        *to,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=2,
    )
    relay = asyncio.ensure_future(end.relay())
    ended = asyncio.ensure_future(agent.wait())
    await asyncio.wait({relay, ended}, return_when=asyncio.FIRST_COMPLETED)
    if not ended.done():
        agent.send_signal(signal.SIGTERM)
        await asyncio.wait({ended}, timeout=_END_S)
    if not ended.done():
        agent.kill()
    return await ended


def main(words: Sequence[str]) -> None:
    """Run the agent; exits with its code."""
    with tempfile.TemporaryDirectory(prefix="hangdoctor-agent-") as folder:
        code = asyncio.run(_run(words, Path(folder)))
    os._exit(code if code >= 0 else 128 - code)  # a thread may wait for its standard input


if __name__ == "__main__":
    main(sys.argv[1:])
