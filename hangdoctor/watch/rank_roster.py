"""All ranks of a job as they were reported last, with totals that are kept as ranks change.

With ten thousand ranks a report must not look at all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from ..transport.messages import RankNow

_STOPPED = ("T", "t")
_TRANSIT_S = 1.0  # reports of a busy machine come this much apart from how they were sent


class Known(Struct):
    """One rank. `event` is its last progress, by the caller's clock, and `sent` when it was last
    reported.
    """

    event: float
    now: RankNow
    sent: float = 0.0
    member: tuple[bool, ...] = ()  # of which sets


class Roster:
    """Sets hold ranks that live, except `lost`."""

    def __init__(self) -> None:
        self.ranks: dict[int, Known] = {}
        self.newest = -1e18  # the last progress of any rank
        self.busy: set[int] = set()
        self.lost: set[int] = set()  # ended, and not cleanly
        self.stopped: set[int] = set()
        self.outside: set[int] = set()  # has a box, is in no operation and does not work
        self.still: set[int] = set()  # without a box: its stack does not change
        self.living: set[int] = set()
        self.boxes: set[int] = set()
        self.finished: set[int] = set()
        self.phases: Counter[str] = Counter()
        self.inside: Counter[tuple[str, int]] = Counter()  # operation and its number

    def put(self, told: RankNow, sent: float) -> None:
        """What is new of one rank, as its agent saw it at `sent`.

        A rank that has been idle for longer than since the report before has made no progress
        between the two: that this one took longer on its way moves nothing.
        """
        known = self.ranks.get(told.rank)
        event = sent - told.idle_s
        if known is None:
            known = self.ranks[told.rank] = Known(event, told)
        else:
            self._count(known.now, -1)
            if told.idle_s > sent - known.sent + _TRANSIT_S:
                event = known.event
        known.event, known.now, known.sent = max(known.event, event), told, sent
        self.newest = max(self.newest, known.event)
        self._count(told, 1)
        member = _membership(told)
        if member != known.member:  # seldom, and there are many sets
            known.member = member
            for group, inside in zip(self._sets(), member, strict=True):
                (group.add if inside else group.discard)(told.rank)

    def drop(self, ranks: Iterable[int]) -> None:
        """Forget these ranks."""
        for rank in ranks:
            known = self.ranks.pop(rank, None)
            if known is not None:
                self._count(known.now, -1)
                for group in self._sets():
                    group.discard(rank)

    def shift(self, seconds: float) -> None:
        """Set all times forward."""
        for known in self.ranks.values():
            known.event += seconds
            known.sent += seconds
        self.newest += seconds

    @property
    def phase(self) -> str:
        """The phase of most ranks."""
        return max(self.phases, key=lambda p: self.phases[p], default="")

    def _sets(self) -> tuple[set[int], ...]:
        return (
            self.busy,
            self.lost,
            self.stopped,
            self.outside,
            self.still,
            self.living,
            self.boxes,
            self.finished,
        )

    def _count(self, told: RankNow, sign: int) -> None:
        """Add a rank to the totals, or take it out of the counters."""
        alive = not told.over
        if alive:
            self.phases[told.phase] += sign
            if not self.phases[told.phase]:
                del self.phases[told.phase]
        if alive and told.inside:
            place = (told.op, told.seq)
            self.inside[place] += sign
            if not self.inside[place]:
                del self.inside[place]


def _membership(told: RankNow) -> tuple[bool, ...]:
    """Which sets of the roster a rank belongs to, in their order."""
    alive = not told.over
    return (
        alive and told.busy,
        told.over and (told.box or told.failed) and not told.finished,
        alive and told.held in _STOPPED,
        alive and told.box and not told.inside and not told.busy,
        alive and told.still,
        alive,
        alive and told.box,
        told.finished,
    )
