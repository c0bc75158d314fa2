"""How long a job goes without progress while nothing is wrong.

Learned live, or read from the boxes' own history.

No I/O and no clock: callers pass the time, in seconds of a clock that never goes back.
"""

from __future__ import annotations

from msgspec import Struct

from ..transport.messages import Past

_PERIOD_S = 900.0
_LONG_PERIOD_S = 43_200.0
_PHASES = 256  # that are distinguished
ENOUGH = 3  # pauses of a phase before its rhythm counts
_SAME_RUN_S = 5.0  # clocks are set, and processes of one run are started one after another
PAST_STEPS = 20  # that a box must hold before its history counts


class Rhythm(Struct):
    """The longest pause in one kind of phase.

    Of this period and of the one before, so that it can shrink again.

    `long_s` likewise over half a day: a pause that comes once in an hour is normal the second time.
    """

    steps: int = 0
    peak_s: float = 0.0
    before_s: float = 0.0
    since_s: float = 0.0
    long_s: float = 0.0
    long_before_s: float = 0.0
    long_since_s: float = 0.0

    @property
    def high_s(self) -> float:
        """Seconds: the longest pause of the last 15 to 30 minutes."""
        return max(self.peak_s, self.before_s)

    @property
    def longest_s(self) -> float:
        """Seconds: the longest pause of the last 12 to 24 hours."""
        return max(self.long_s, self.long_before_s, self.high_s)

    def turn(self, now: float) -> None:
        """Begin new periods where the old ones are over."""
        if not 0 <= now - self.since_s <= _PERIOD_S:
            self.before_s, self.peak_s, self.since_s = self.peak_s, 0.0, now
        if not 0 <= now - self.long_since_s <= _LONG_PERIOD_S:
            self.long_before_s, self.long_s, self.long_since_s = self.long_s, 0.0, now

    def put(self, age_s: float) -> None:
        """One more pause that was normal."""
        self.peak_s = max(self.peak_s, age_s)
        self.long_s = max(self.long_s, age_s)


class Run(Struct):
    """One run of a job, as one node sees it: the job's key, and when its processes began there."""

    job: str
    began: float  # seconds since the epoch, by the node's clock

    def is_of(self, job: str, began: float) -> bool:
        """Whether this is the same run: a key alone comes again with the next job."""
        return self.job == job and abs(self.began - began) < _SAME_RUN_S


class Learned(Struct):
    """What outlives a restart of the collector, for as long as the job is the same."""

    rhythms: dict[str, Rhythm] = {}
    warm: bool = False
    runs: dict[str, Run] = {}  # by node: whose rhythm it is

    def of(self, label: str) -> Rhythm:
        """The rhythm of a phase, an empty one where it was not seen."""
        found = self.rhythms.get(label)
        if found is None and len(self.rhythms) >= _PHASES:
            found = self.rhythms.get("phase:")
        return found or Rhythm()

    def turned(self, now: float, label: str) -> Rhythm:
        """The rhythm of a phase, ready to be added to."""
        if label not in self.rhythms and len(self.rhythms) >= _PHASES:
            label = "phase:"  # a job that numbers its phases has no use for a rhythm of each
        rhythm = self.rhythms.setdefault(label, Rhythm(since_s=now, long_since_s=now))
        rhythm.turn(now)
        return rhythm

    def recall(self, now: float, past: Past) -> bool:
        """Take the history of a node's boxes; whether it is enough to know the rhythm.

        Of all nodes the longest pauses count: a box may reach less far back than another one.
        """
        if past.steps < PAST_STEPS:
            return False
        for phase in past.phases:
            rhythm = self.turned(now, f"phase:{phase.name}")
            rhythm.steps = max(rhythm.steps, phase.pauses)
            rhythm.peak_s = max(rhythm.peak_s, phase.usual_s)
            rhythm.long_s = max(rhythm.long_s, phase.longest_s)
        enough = any(phase.pauses >= ENOUGH for phase in past.phases)
        self.warm = self.warm or enough
        return enough
