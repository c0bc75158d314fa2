"""The line of a collector to its parent."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from .._version import __version__
from ..transport import address, keys
from ..transport.link import Line, take_place
from ..transport.messages import FromAgent, FromCollector, Hello, Relayed
from ..transport.spool import Spool

AUTO = "auto"
_SPOOL_BYTES = 64 << 20
_ANSWERS = 20_000  # of nodes, that wait for the one above
_BUSY_S = 0.05


class Parent(Struct, frozen=True):
    """The collector above, and the name that this one goes by there."""

    folder: Path  # of the job: its keys, and the address of the first collector
    address: str = AUTO
    name: str = ""
    insecure: bool = False


class Uplink:
    """Keeps the line up and hands on what the parent wants."""

    def __init__(self, parent: Parent, place: Path) -> None:
        self.parent = parent
        self._began = 0
        self._waiting: deque[FromAgent] = deque(maxlen=_ANSWERS)
        agent, self._lock, where = take_place(place)
        self.line = Line(
            name=agent,
            spool=Spool(where, _SPOOL_BYTES),
            find=self._find,
            pairs=self._pairs,
            hello=lambda: Hello(agent, parent.name, version=__version__, relay=True),
        )

    def _find(self) -> str:
        if self.parent.address == AUTO:
            return address.published(self.parent.folder)
        return self.parent.address

    def _pairs(self) -> keys.Keys | None:
        return None if self.parent.insecure else keys.load(self.parent.folder)

    def keep(self, report: Relayed) -> None:
        """Put a report into the spool: it is sent in order, until the parent has acknowledged it."""
        report.late_s = time.monotonic()
        self.line.put(report)

    def send(self, answer: FromAgent) -> bool:
        """An answer of a node; where the queue is full it waits for the one above. False: there is
        no line.
        """
        self._waiting.append(answer)
        self._flush()
        return self.line.socket is not None

    def _flush(self) -> None:
        while self._waiting and self.line.send(self._waiting[0]):
            self._waiting.popleft()

    def pump(self) -> None:
        """Connect where that is needed, and send what waits."""
        self.line.connect()
        self.line.talk()
        self._flush()

    def met_anew(self) -> bool:
        """True once after each beginning: the parent may have been restarted, and know nothing of
        the nodes here.
        """
        before, self._began = self._began, self.line.began
        return self._began != before

    async def run(self, obey: Callable[[FromCollector], None]) -> None:
        """Until it is cancelled."""
        while True:
            self.pump()
            for message in await self.line.read(_BUSY_S if self._waiting else 1.0):
                obey(message)
