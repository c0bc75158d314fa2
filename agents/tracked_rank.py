"""What the agent remembers of one rank from sample to sample."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from hangdoctor.readers import discover
from hangdoctor.readers.box_position import BoxWatch
from hangdoctor.transport.messages import LATEST, MOST, EventNow, RankNow


class Tracked(Struct):
    """One rank and what was last seen of it."""

    found: discover.Found
    now: RankNow
    box: BoxWatch | None = None
    changed_at: float = 0.0  # monotonic: its last progress
    looked_at: float = 0.0
    event: object = None
    cpu_s: float = -1.0
    io_bytes: int = -1
    switches: int = -1
    stacks: list[str] = []  # of a rank without a box: the last two
    stack_at: float = 0.0
    unread: int = 0  # stacks in a row that could not be read
    dead: bool = False
    ended_at: float = 0.0  # monotonic: when its process was first not there any more
    spins: bool = False
    ahead: bool = False  # its backend enqueues and returns: waiting uses the processor
    pending: bool = False
    ran_at: float = 0.0  # monotonic: when the main thread of a rank without a box had run
    told_event: int = 0  # number of the training's event that was reported last
    folder: Path | None = None  # that its box was in

    def new_events(self, wall: float, mono: float) -> list[EventNow]:
        """What the training has said in this rank since the last call; `wall` and `mono` are the
        clocks of now.

        Raises:
            OSError: its box cannot be read any more.
        """
        box = self.box
        found = box.events(self.told_event) if box is not None else []
        if box is None or not found:
            return []
        self.told_event = found[-1].serial
        return [
            EventNow(
                rank=self.found.rank,
                made=min(box.made_ns, MOST),
                serial=min(event.serial, MOST),
                kind=event.kind,
                text=event.text,
                iteration=min(max(-1, event.iteration), MOST),
                at=min(event.at_s, LATEST),
                age_s=box.age_s(event.at_s, wall, mono),
                pid=self.found.pid,
            )
            for event in found
        ]
