"""What a timeline is made of: the histories of ranks, and the same on one axis."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from msgspec import Struct

from ..model.calls import CallTrace
from ..model.operations import Group, RankOps, spoken
from ..text.group_words import group_words
from ..text.ranges import format_ranks

# (place of the rank in the list of ranks, place of the operation in its history)
Member = tuple[int, int]


class RankTrace(Struct):
    """The history of one rank, in its own clock."""

    rank: int
    ops: RankOps
    node: str = ""
    pid: int = 0
    clock: str = ""  # ranks with the same text share a clock
    threads: dict[int, str] = {}  # thread id -> name
    calls: CallTrace | None = None  # its Python calls, where the source holds them
    calls_path: str = ""  # else where they can be read when they are wanted: rings are large


class Trace(Struct):
    """The histories of a job, ordered by rank."""

    ranks: list[RankTrace]
    groups: dict[str, Group] = {}  # by uid, with their members where any rank shows them
    job: str = ""
    taken_s: float = 0.0  # when it was captured, by the clock of who did it; 0 if unknown
    notes: list[str] = []


class OperationInstance(Struct, frozen=True):
    """One operation of one group (or one message) and the records of it, of two ranks or more."""

    group: str
    op: str
    seq: int
    members: list[Member]


class Correction(Struct):
    """What makes one clock's readings times of the reference clock."""

    clock: str
    ranks: list[int]
    reference: str
    offset_ns: int = 0  # to add to its readings; with drift, at the middle of the history
    bound_ns: int | None = (
        None  # the truth lies within offset +- bound; None where it cannot be told
    )
    drift_ppm: float = 0.0
    why: str = ""  # why there is no bound
    knots: list[
        tuple[int, int]
    ] = []  # (its own reading, offset) where the offset changes over time

    def at(self, reading_ns: int) -> int:
        """A reading of this clock in the time of the reference."""
        knots = self.knots
        if len(knots) < 2:
            return reading_ns + self.offset_ns
        if reading_ns <= knots[0][0]:
            return reading_ns + knots[0][1]
        for (t0, o0), (t1, o1) in pairwise(knots):
            if reading_ns <= t1:
                return reading_ns + o0 + (o1 - o0) * (reading_ns - t0) // max(1, t1 - t0)
        return reading_ns + knots[-1][1]


class Lane(Struct):
    """One rank on the common axis: nanoseconds since the timeline's beginning, one entry an
    operation; end -1 is open.
    """

    trace: RankTrace
    begin: list[int]
    end: list[int]


class Timeline(Struct):
    """All ranks on one clock, with their operations joined across ranks."""

    trace: Trace
    lanes: list[Lane]
    instances: list[OperationInstance]
    clocks: list[Correction]
    base_ns: int  # the beginning: nanoseconds since the epoch, by the reference clock
    end_ns: int  # the last thing that was seen, since the beginning
    words: dict[
        Any, Any
    ] = {}  # what was put into words already: there are many operations of few kinds

    def group_words(self, uid: str) -> str:
        """``DP group 0,2``, ``the whole job``; its uid where its members are unknown."""
        known: str | None = self.words.get(uid)
        if known is None:
            group = self.trace.groups.get(uid)
            name = spoken(group.name) if group is not None else ""
            members = format_ranks(group.ranks) if group is not None else ""
            known = self.words[uid] = group_words(name, members) or uid
        return known

    def correction(self, trace: RankTrace) -> Correction:
        """What makes readings of the rank's clock those of the common axis."""
        return next(c for c in self.clocks if c.clock == trace.clock)

    def at(self, trace: RankTrace, reading_s: float) -> int:
        """A reading of a rank's clock on the common axis, never before its beginning."""
        return max(0, self.correction(trace).at(nanoseconds(reading_s)) - self.base_ns)


def nanoseconds(seconds: float) -> int:
    """Whole nanoseconds of so many seconds."""
    return round(seconds * 1e9)
