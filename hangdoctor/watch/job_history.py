"""The progress of a job over the last week, in rings of buckets: what the page's time axis shows.

Pure. Callers pass two clocks: `mono` never goes back and measures how long something took; `wall`,
the time of day, only says which bucket that goes into. Where the time of day is set back, what was
recorded for later times is dropped; where it is set forward, the axis has a gap.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from msgspec import Struct

from .live_ranks import STILL_S

# Name of a span -> seconds of a bucket, number of buckets.
SPANS = {"1h": (10, 360), "6h": (60, 360), "24h": (300, 288), "7d": (1800, 336)}
SCHEMA = "hangdoctor.history/1"
_LATE_S = 5.0  # a sample that comes later than this: the collector did not run in between
_MAX_STALLS = 200
_WEEK_S = 7 * 86_400.0
_SAME_STALL_S = 10.0  # two begins this close are of one stall, before and after a restart
SHARES, STEPS = 10, 1000  # parts of a second and of a step in the file


class Bucket(Struct):
    """Seconds of one bucket, and the steps in it."""

    watched: float = 0.0  # the collector ran and could say how the job is
    alive: float = 0.0  # a rank of the job lived
    moved: float = 0.0  # some rank made progress
    counted: float = 0.0  # the iteration was known
    steps: float = 0.0  # iterations that ended, each spread over the time that it took


Row = tuple[int, int, int, int, int]  # a bucket in the file


class KeptRing(Struct):
    """One ring in the file: rows from bucket number `first` on, None where there is none."""

    first: int = 0
    rows: list[Row | None] = []


class Kept(Struct):
    """All that is kept, as in the file and on the way to the page.

    `at` and `stepped` (the last step that was counted, 0 before one) are times of day, `pace_s` is
    how long that step took, `stalls` are pairs of times of day.
    """

    schema: str = SCHEMA
    at: float = 0.0
    stepped: float = 0.0
    pace_s: float = 0.0
    rings: dict[str, KeptRing] = {}
    stalls: list[tuple[float, float]] = []


class Moment(Struct, frozen=True):
    """The job as the collector sees it; `event` is the last progress of any rank, by `mono`."""

    alive: bool = False
    heard: bool = False  # some agent is heard
    stalled: bool = False
    event: float = 0.0
    counted: bool = False  # the iteration is known
    steps: int = 0  # since the moment before


class Ring:
    """Buckets of one width, by number: the time of day divided by the width."""

    def __init__(self, step_s: int, length: int) -> None:
        self.step_s, self.length = step_s, length
        self.buckets: dict[int, Bucket] = {}

    def number(self, wall: float) -> int:
        """Of the bucket that this time of day is in."""
        return math.floor(wall / self.step_s)

    def at(self, wall: float) -> Bucket:
        """The bucket of now; those out of the ring, and those of the future, are dropped."""
        now = self.number(wall)
        found = self.buckets.get(now)
        if found is None or len(self.buckets) > self.length or max(self.buckets) > now + 1:
            oldest = now - self.length
            kept = {n: b for n, b in self.buckets.items() if oldest < n <= now + 1}
            found = kept.setdefault(now, Bucket())
            self.buckets = kept
        return found

    def add(self, wall: float, seconds: Bucket) -> None:
        """Put the seconds of one sample in; a bucket never holds more than its width."""
        bucket = self.at(wall)
        for name in ("watched", "alive", "moved", "counted"):
            sum_s = getattr(bucket, name) + getattr(seconds, name)
            setattr(bucket, name, min(float(self.step_s), sum_s))

    def spread(self, steps: float, begin: float, end: float) -> None:
        """Share steps out over the buckets between two times of day."""
        last = self.number(end)
        for number in range(max(self.number(begin), last - self.length), last + 1):
            bucket = self.buckets.get(number)
            if bucket is not None:
                bucket.steps += steps * overlap(number * self.step_s, self.step_s, begin, end)

    def keep(self) -> KeptRing:
        """As it goes into the file."""
        if not self.buckets:
            return KeptRing()
        first, last = min(self.buckets), max(self.buckets)
        found = [self.buckets.get(n) for n in range(max(first, last - self.length), last + 1)]
        return KeptRing(last + 1 - len(found), [_row(b) if b else None for b in found])

    def take(self, kept: KeptRing) -> None:
        """Go on with what a file held; of numbers that cannot be, only what can."""
        for number, row in enumerate(kept.rows[-self.length :], kept.first):
            if row is not None:
                self.buckets[number] = _bucket(row, self.step_s)


def overlap(at: float, width: float, begin: float, end: float) -> float:
    """Which share of begin..end is in a bucket; all of it where begin is end."""
    if end <= begin:
        return 1.0 if at <= end < at + width else 0.0
    return max(0.0, min(end, at + width) - max(begin, at)) / (end - begin)


def _row(bucket: Bucket) -> Row:
    seconds = (bucket.watched, bucket.alive, bucket.moved, bucket.counted)
    watched, alive, moved, counted = (round(s * SHARES) for s in seconds)
    return watched, alive, moved, counted, round(bucket.steps * STEPS)


def _bucket(row: Row, step_s: int) -> Bucket:
    watched, alive, moved, counted = (min(max(0, n) / SHARES, float(step_s)) for n in row[:4])
    steps = max(0, row[4]) / STEPS
    return Bucket(watched=watched, alive=alive, moved=moved, counted=counted, steps=steps)


class History:
    """Fed with one `Moment` a second."""

    def __init__(self, kept: Kept | None = None) -> None:
        self.rings = {name: Ring(*sizes) for name, sizes in SPANS.items()}
        self.stalls: list[tuple[float, float]] = []
        self._at: tuple[float, float] | None = None  # both clocks at the sample before
        self._stepped: float | None = None  # by `mono`: the last step, or the first sight of one
        self._pace_s = 0.0
        self._stall_event: float | None = None  # the last progress before the stall of now
        self._lived = False  # a rank was seen: that none lives is the end of the job then
        if kept is not None:
            for name, ring in self.rings.items():
                ring.take(kept.rings.get(name, KeptRing()))
            self.stalls = [(a, b) for a, b in kept.stalls if a <= b][-_MAX_STALLS:]

    @property
    def pace_s(self) -> float:
        """How long the last step took, 0 before one was counted."""
        return self._pace_s

    def sample(self, now: Moment, mono: float, wall: float) -> None:
        """What is seen at this moment stands for the time since the sample before."""
        before, self._at = self._at, (mono, wall)
        if before is None or not 0.0 <= mono - before[0] <= _LATE_S:
            return  # also steps: it is not known when they were made
        self._lived = self._lived or now.alive
        if now.heard or (self._lived and not now.alive):
            self._add(now, mono - before[0], mono, wall)
        self._stall(now, mono, wall)

    def _add(self, now: Moment, passed: float, mono: float, wall: float) -> None:
        moving = now.alive and mono - now.event < STILL_S
        counted = now.alive and now.counted
        seconds = Bucket(
            watched=passed,
            alive=passed if now.alive else 0.0,
            moved=passed if moving else 0.0,
            counted=passed if counted else 0.0,
        )
        for ring in self.rings.values():
            ring.add(wall - passed / 2, seconds)  # the time before this moment
        if not counted:
            self._stepped = None
        elif self._stepped is None:
            self._stepped = mono - passed
        if counted and now.steps and self._stepped is not None:
            took = mono - self._stepped
            for ring in self.rings.values():
                ring.spread(now.steps, wall - took, wall)
            self._stepped, self._pace_s = mono, took / now.steps

    def _stall(self, now: Moment, mono: float, wall: float) -> None:
        """Begin, go on with or end the stall; one that was taken back was none."""
        if now.stalled and now.alive:
            begin = wall - (mono - now.event) if now.event > 0 else wall
            if self.stalls and self._is_last(begin):
                begin = self.stalls.pop()[0]
            self.stalls.append((begin, max(begin, wall)))
            self._stall_event = now.event
        elif self._stall_event is not None:
            taken_back = now.alive and now.event == self._stall_event
            if taken_back and self.stalls:
                self.stalls.pop()
            self._stall_event = None
        oldest = wall - _WEEK_S
        kept = [s for s in self.stalls if s[1] > oldest and s[0] <= wall + 1.0]
        self.stalls = kept[-_MAX_STALLS:]

    def _is_last(self, begin: float) -> bool:
        """Whether the stall that begins there is the one noted last."""
        if self._stall_event is not None:
            return True
        first, last = self.stalls[-1]
        return begin <= last and begin >= first - _SAME_STALL_S

    def keep(self) -> Kept:
        """Everything, for the file and for the page."""
        if self._at is None:
            mono, wall = 0.0, 0.0
        else:
            mono, wall = self._at
        stepped = wall - (mono - self._stepped) if self._stepped is not None else 0.0
        return Kept(
            at=wall,
            stepped=round(stepped, 2),
            pace_s=round(self._pace_s, 4),
            rings={name: ring.keep() for name, ring in self.rings.items()},
            stalls=[(round(a, 1), round(b, 1)) for a, b in self.stalls],
        )


def rows_of(ring: KeptRing, newest: int, length: int) -> Iterator[Row | None]:
    """Rows of the last `length` buckets up to number `newest`."""
    for number in range(newest - length + 1, newest + 1):
        place = number - ring.first
        yield ring.rows[place] if 0 <= place < len(ring.rows) else None
