"""What the waits of a job end in, sorted by what it is."""

from __future__ import annotations

from msgspec import Struct

from .evidence import Note
from .lone_culprit import Sink
from .waits import Instance


class Ends(Struct):
    """Ranks, operations and rings that nothing leads out of."""

    alone: list[Sink] = []
    # Nothing is known about these ranks; with the instances that lack them.
    silent: dict[int, list[Instance]] = {}
    idle: set[int] = set()  # of these, those that wait for no rank as far as their peers show
    left: list[Sink] = []  # finished cleanly
    full: list[Instance] = []  # operations that everyone has come to
    rings: list[list[int]] = []  # ranks that wait for one another
    by_stacks: list[list[int]] = []  # the same, where the stacks of some show for which rank
    awaited: dict[int, list[Instance]] = {}  # silent ranks that known ones wait for
    around: set[int] = set()  # known ranks in rings that silent ones close
    notes: list[Note] = []  # why an end of waits names no rank
