"""What the agent remembers of one rank from sample to sample."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from hangdoctor.readers import discover
from hangdoctor.readers.box_position import BoxWatch
from hangdoctor.transport.messages import RankNow


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
    folder: Path | None = None  # that its box was in
