"""Tells a stall from a slow step, without a timeout from anybody: learns how long a job goes without progress.

Progress is any operation that a rank enters or leaves, a step of its optimizer, or a new iteration, micro-batch or phase. The job's *age* is the
time since the last progress of any rank. Ages are sampled with every report; the largest between two steps of progress
is what the job showed to be normal. Learned apart: each phase that the job marks, and `working` (a rank uses the
processor or does I/O outside any operation: compiling, writing a checkpoint, evaluating), which needs no marks.

No I/O and no clock here: callers pass the time, in seconds of a clock that never goes back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from .messages import RankNow
from .operations import STORE

WORKING = "working"


class Settings(Struct, frozen=True):
    """Bounds in seconds."""

    stall_after_s: float = 0.0  # fixed by the user; 0 learns
    interval_s: float = 1.0  # between reports
    factor: float = 6.0  # a step five times as slow as the slowest seen is no stall
    floor_s: float = 6.0
    floor_blind_s: float = 300.0  # ranks without a black box: stacks every 30 s are coarse evidence
    start_s: float = 300.0  # until the job has a rhythm
    unknown_s: float = 180.0  # a phase that was not seen often enough
    working_s: float = 120.0
    end_s: float = 60.0
    timeout_s: float = 600.0  # of the process groups, where nobody tells: NCCL's
    capture_s: float = 10.0  # what a capture needs before such a time-out ends the job
    deaf_s: float = 4.0  # without a report from any node nothing can be said
    warm_steps: int = 8  # samples with progress before the rhythm counts
    warm_s: float = 8.0


class Rhythm(Struct):
    """The largest age seen in one kind of phase: of this period and of the one before, so that it can shrink again."""

    steps: int = 0
    peak_s: float = 0.0
    before_s: float = 0.0
    since_s: float = 0.0

    @property
    def high_s(self) -> float:
        return max(self.peak_s, self.before_s)


class Learned(Struct):
    """What outlives a restart of the collector."""

    rhythms: dict[str, Rhythm] = {}
    warm: bool = False


class Stall(Struct, frozen=True):
    """Nobody makes progress."""

    age_s: float
    bound_s: float
    phase: str
    why: str


class _Rank(Struct):
    event: float  # of the caller's clock
    phase: str = ""
    box: bool = False
    over: bool = False
    finished: bool = False


_PERIOD_S = 900.0
_TIMES_SEEN = 1.5
_ENOUGH = 3  # gaps of a phase
_PHASES = 256  # that are told apart


class Watchdog:
    """Fed with `report` and `tick`; `tick` answers with a stall once for each."""

    def __init__(self, settings: Settings, learned: Learned | None = None) -> None:
        self.settings = settings
        self.learned = learned or Learned()
        self._ranks: dict[int, _Rank] = {}
        self._busy: set[int] = set()
        self._lost: set[int] = set()  # ended, and not in good order
        self._phases: Counter[str] = Counter()
        self._newest = -1e18
        self._heard_at = -1e18
        self._pending: dict[str, float] = {}
        self._last_event = 0.0
        self._quiet_since = 0.0
        self._ticked: float | None = None
        self._calm_until = 0.0
        self._recovering_until = -1e18
        self._stalled = False
        self._timeouts: dict[str, float] = {}
        self._first_event: float | None = None
        self._steps = 0
        self._training = False

    # ----------------------------------------------------------------- what comes in

    def report(self, now: float, ranks: Iterable[RankNow], late_s: float = 0.0) -> None:
        """What one node says of its ranks; `late_s` is how long the report was on its way.

        A late one tells of the past: an age until now would be that of the network, not of the job.
        """
        told = list(ranks)
        if told and not self._ranks and min(one.idle_s for one in told) > self.settings.deaf_s:
            self._wait(now)  # the first node's ranks have stood for long; those of others may be moving
        for one in told:
            self._put(one, now - late_s - one.idle_s)
        if late_s > self.settings.deaf_s:
            self._wait(now)
        if late_s < self.settings.interval_s * 2:
            if told:
                self._heard_at = now
            self._sample(now)

    def _put(self, told: RankNow, event: float) -> None:
        known = self._ranks.get(told.rank)
        if known is None:
            known = self._ranks[told.rank] = _Rank(event)
            self._phases[""] += 1
        known.event = max(known.event, event)
        self._newest = max(self._newest, known.event)
        # Meeting each other and making groups is no rhythm yet.
        self._training = self._training or told.op not in STORE or told.iteration > 0
        # Totals are kept as they change: with ten thousand ranks a report must not look at all of them.
        if not known.over:
            self._leave(known.phase)
        if not told.over:
            self._phases[told.phase] += 1
        (self._busy.add if told.busy and not told.over else self._busy.discard)(told.rank)
        lost = told.over and told.box and not told.finished
        (self._lost.add if lost else self._lost.discard)(told.rank)
        known.phase, known.box, known.over, known.finished = told.phase, told.box, told.over, told.finished

    def forget(self, ranks: Iterable[int]) -> None:
        """They belonged to a run that is over: another one has begun in its place."""
        for rank in ranks:
            known = self._ranks.pop(rank, None)
            if known is not None and not known.over:
                self._leave(known.phase)
            self._busy.discard(rank)
            self._lost.discard(rank)

    def _leave(self, phase: str) -> None:
        self._phases[phase] -= 1
        if self._phases[phase] <= 0:
            del self._phases[phase]

    def heard(self, now: float, node: str = "", timeout_s: float = 0.0) -> None:
        """A node has reported, perhaps that nothing changed; `timeout_s` is its process groups' shortest time-out."""
        self._heard_at = now
        if timeout_s > 0:
            self._timeouts[node] = timeout_s
        self._sample(now)

    def _sample(self, now: float) -> None:
        if not self._ranks:
            return
        last = self._newest
        if self._works():
            self._quiet_since = now
        if last > self._last_event + 1e-3:
            self._progress(now, last)
        label = self._label()
        # Of a long age, the share that was work must not be taken for a normal pause between operations.
        age = now - last if label == WORKING else now - max(last, self._quiet_since)
        if now - age >= self._recovering_until:  # a network that comes back does so haltingly: that is no rhythm
            self._pending[label] = max(self._pending.get(label, 0.0), age)

    def _progress(self, now: float, last: float) -> None:
        """A step was made: what the ages were until it is learned, unless they were a stall."""
        if self._first_event is None or not self._training:
            self._first_event = last
        elif not self._stalled:
            for label, age in self._pending.items():
                self._learn(now, label, age)
            self._steps += 1
        if self._stalled:
            self._calm_until = max(self._calm_until, now + self.settings.floor_s)
            self._recovering_until = now + 2 * self.settings.floor_s
        self._pending.clear()
        self._stalled = False
        self._last_event = last
        self._quiet_since = max(self._quiet_since, last)
        if self._steps >= self.settings.warm_steps and last - self._first_event >= self.settings.warm_s:
            self.learned.warm = True

    def _learn(self, now: float, label: str, age: float) -> None:
        if label not in self.learned.rhythms and len(self.learned.rhythms) >= _PHASES:
            label = "phase:"  # a job that numbers its phases has no use for a rhythm of each
        rhythm = self.learned.rhythms.setdefault(label, Rhythm(since_s=now))
        if now - rhythm.since_s > _PERIOD_S or now < rhythm.since_s:
            rhythm.before_s, rhythm.peak_s, rhythm.since_s = rhythm.peak_s, 0.0, now
        if self.learned.warm or label == WORKING:  # first steps are slow: they teach nothing of the others
            rhythm.peak_s = max(rhythm.peak_s, age)
            rhythm.steps += 1

    def _works(self) -> bool:
        """Some rank works outside of operations, and that can come to something: not after another one was lost."""
        return bool(self._busy) and not self._lost

    def _label(self) -> str:
        if self._works():
            return WORKING
        phase = max(self._phases, key=lambda p: self._phases[p], default="")
        return f"phase:{phase}"

    # ----------------------------------------------------------------- what comes out

    def tick(self, now: float) -> Stall | None:
        """Call it every interval: a tick that comes late says that this machine stood still."""
        before, self._ticked = self._ticked, now
        if before is not None and now - before > max(5.0, 5 * self.settings.interval_s):
            self._shift(now - before - self.settings.interval_s)
            self._calm_until = now + 2 * self.settings.deaf_s
        if self._ranks and self._deaf(now):
            self._wait(now)
        if not self._ranks or self._stalled or now < self._calm_until or self._over():
            return None
        label = self._label()
        age = now - self._last_event
        counted = age if label == WORKING else now - max(self._last_event, self._quiet_since)
        bound, why = self.bound(label)
        if counted <= bound:
            return None
        self._stalled = True
        return Stall(age, bound, label.removeprefix("phase:"), why)

    def false_alarm(self, now: float) -> None:
        """The capture showed no hang: such an age is normal in this phase, too."""
        for label, age in self._pending.items():
            self._learn(now, label, age)
            known = self.learned.rhythms.get(label)
            if known is not None:  # also before the first rhythm, when nothing else is learned
                known.peak_s = max(known.peak_s, age)
        self._pending.clear()
        self._calm_until = now + max(30.0, now - self._last_event)
        self._stalled = False

    def bound(self, label: str) -> tuple[float, str]:
        """(seconds without progress that are still normal, where that figure is from)."""
        s = self.settings
        if s.stall_after_s:
            return s.stall_after_s, "fixed by --stall-after"
        bound, why = self._learned_bound(label)
        if bound <= self.limit_s:
            return bound, why
        # A pause that is longer than that and was seen to be normal cannot be what the time-out is about.
        rhythm = self.learned.rhythms.get(label)
        least = max(self.limit_s, _TIMES_SEEN * rhythm.high_s if rhythm is not None and self.learned.warm else 0.0)
        return (bound, why) if bound <= least else (least, f"{why}; the process groups' own time-out comes soon")

    @property
    def limit_s(self) -> float:
        """Until when a capture must begin, to be done before the process groups' own time-out ends the job."""
        timeout = min(self._timeouts.values(), default=self.settings.timeout_s)
        return timeout - min(max(self.settings.capture_s, 0.2 * timeout), 0.5 * timeout)

    def _learned_bound(self, label: str) -> tuple[float, str]:
        s = self.settings
        alive = [r for r in self._ranks.values() if not r.over]
        floor = s.floor_s if any(r.box for r in alive) else s.floor_blind_s
        rhythms = self.learned.rhythms
        rhythm = rhythms.get(label) or (rhythms.get("phase:") if len(rhythms) >= _PHASES else None) or Rhythm()
        if label == WORKING:
            return max(s.working_s, floor, s.factor * rhythm.high_s), "ranks work outside of operations"
        if not self.learned.warm:
            return s.start_s, "the job is still starting"
        if any(r.finished for r in self._ranks.values()):
            floor = max(floor, s.end_s)
        if rhythm.steps < _ENOUGH:
            return max(s.unknown_s, floor), "this phase was not seen before"
        learned = max(floor, s.factor * rhythm.high_s + 2 * s.interval_s)
        return learned, f"up to {rhythm.high_s:.1f} s between steps is normal here"

    @property
    def stalled(self) -> bool:
        return self._stalled

    @property
    def ranks(self) -> int:
        return len(self._ranks)

    @property
    def living(self) -> int:
        return sum(not r.over for r in self._ranks.values())

    def _over(self) -> bool:
        return all(r.over for r in self._ranks.values())

    def _deaf(self, now: float) -> bool:
        return now - self._heard_at > self.settings.deaf_s

    def _wait(self, now: float) -> None:
        """Reports are under way that tell of progress: some nodes come back, or catch up, before others."""
        self._calm_until = max(self._calm_until, now + self.settings.deaf_s)
        self._recovering_until = max(self._recovering_until, now)

    def _shift(self, gap: float) -> None:
        """This machine stood still, or slept: nobody made progress meanwhile, and nobody was to."""
        for rank in self._ranks.values():
            rank.event += gap
        self._newest += gap
        self._heard_at += gap
        self._last_event += gap
        self._quiet_since += gap
        self._pending.clear()
