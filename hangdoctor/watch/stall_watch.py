"""Distinguishes a stall from a slow step, without a configured timeout: learns how long a job goes without progress.

Progress is any operation that a rank enters or leaves, a step of its optimizer, or a new iteration, micro-batch or phase. The job's *age* is the
time since the last progress of any rank. Ages are sampled with every report; the largest between two steps of progress
is what the job showed to be normal. Learned apart: each phase that the job marks, and `working` (a rank uses the
processor or does I/O outside any operation: compiling, writing a checkpoint, evaluating), which needs no marks.

No I/O and no clock here: callers pass the time, in seconds of a clock that never goes back.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from ..model.operations import STORE
from ..transport.messages import Past, RankNow
from . import stall_bounds as bounds
from . import stall_evidence as evidence
from .job_rhythm import ENOUGH, Run
from .job_rhythm import Learned as Learned
from .rank_roster import Roster
from .stall_bounds import WORKING as WORKING
from .stall_bounds import Settings as Settings
from .stall_evidence import Hearing


class Stall(Struct, frozen=True):
    """No rank makes progress."""

    age_s: float
    bound_s: float
    phase: str
    why: str


class Suspicion(Struct, frozen=True):
    """A pause that looks like a stall already; it is one when it has lasted `commit_s`."""

    event: float  # the last progress, by the caller's clock
    age_s: float
    commit_s: float
    phase: str
    why: str


_TIMES_EVIDENT = 3.0  # of the longest pause that was normal
_TIMES_CERTAIN = 2.0  # ... where a process or a node is gone
_LOOKS_S = 2.2  # two samples of each agent: whether a rank works is known from the second
_FIRST_STACKS_S = 60.0  # the first two stacks of ranks without a box have come by then
_DROPPED_S = 30.0  # patience after evidence that came to nothing; twice as long each time
_DROPPED_MOST_S = 1800.0


class StallWatch:
    """Fed with `report` and `tick`; `tick` answers with a stall once for each."""

    def __init__(self, settings: Settings, learned: Learned | None = None) -> None:
        self.settings = settings
        self._met = False  # a node of the run whose rhythm this is
        self._begin(learned or Learned())

    def _begin(self, learned: Learned) -> None:
        self.learned = learned
        self._ranks = Roster()
        self._heard_at = -1e18
        self._pending: dict[str, float] = {}
        self._last_event = 0.0
        self._quiet_since = 0.0
        self._ticked: float | None = None
        self._calm_until = 0.0
        self._came: float | None = None  # the first word of any rank
        self._arriving_until = -1e18  # until then nodes of a job that stood before may still come
        self._recovering_until = -1e18
        self._stalled = False
        self._timeouts: dict[str, float] = {}
        self._first_event: float | None = None
        self._steps = 0
        self._training = False
        self._recalled = False
        self._silent: frozenset[int] = frozenset()
        self._refused = -1e18  # the last progress before a capture on evidence that showed no hang
        self._patient_until = -1e18
        self._dropped = 0

    # ----------------------------------------------------------------- what comes in

    def report(self, now: float, ranks: Iterable[RankNow], late_s: float = 0.0) -> None:
        """What one node says of its ranks; `late_s` is how long the report was on its way.

        A late one is about the past: an age until now would be that of the network, not of the job.
        """
        told = list(ranks)
        first_word = self._arrive(now, told)
        for one in told:
            # Meeting each other and making groups is not a rhythm yet.
            self._training = self._training or one.op not in STORE or one.iteration > 0
            self._ranks.put(one, now - late_s)
        if late_s > self.settings.deaf_s and not first_word:
            self._wait(now)
        if late_s < self.settings.interval_s * 2:
            if told:
                self._heard_at = now
            self._sample(now)

    def _arrive(self, now: float, told: list[RankNow]) -> bool:
        """Ranks that have stood for long when seen first: those of other nodes may be moving.

        Returns whether all of these are new: what they say may be old, and no word of theirs is missing before it.
        """
        fresh = [one for one in told if one.rank not in self._ranks.ranks]
        if self._came is None and told:
            self._came = now
        stood = not self._ranks.ranks or now < self._arriving_until
        if fresh and stood and min(one.idle_s for one in fresh) > self.settings.deaf_s:
            self._arriving_until = now + self.settings.deaf_s
            self._recovering_until = max(self._recovering_until, now)
        return bool(told) and len(fresh) == len(told)

    def recall(self, now: float, past: Past) -> None:
        """What the boxes of a node remember: a job that stands already shows its rhythm no more."""
        if self.learned.warm and not self._recalled:
            return
        self._recalled = self.learned.recall(now, past) or self._recalled

    def met(self, node: str, job: str, began: float) -> bool:
        """A node says which run its ranks are of; whether that is another one than what was learned.

        Then all is forgotten: the next job under the same name may have a slower rhythm.
        """
        if not job or not began:
            return False
        before = self.learned.runs.get(node)
        if before is None:
            other = bool(self.learned.rhythms) and not self._met
        else:
            other = not before.is_of(job, began)
        if other:
            self._begin(Learned())
        self._met = True
        self.learned.runs[node] = Run(job, began)
        return other

    def forget(self, ranks: Iterable[int]) -> None:
        """They belonged to a run that is over: another one has begun in its place."""
        self._ranks.drop(ranks)

    def heard(self, now: float, node: str = "", timeout_s: float = 0.0) -> None:
        """A node has reported, perhaps that nothing changed.

        `timeout_s` is its process groups' shortest time-out.
        """
        self._heard_at = now
        if timeout_s > 0:
            self._timeouts[node] = timeout_s
        self._sample(now)

    def _sample(self, now: float) -> None:
        if not self._ranks.ranks:
            return
        last = self._ranks.newest
        if self._works():
            self._quiet_since = now
        if last > self._last_event + 1e-3:
            self._progress(now, last)
        label = self._label()
        # Of a long age, the share that was work must not be taken for a normal pause between operations.
        age = now - last if label == WORKING else now - max(last, self._quiet_since)
        if (
            now - age >= self._recovering_until
        ):  # a network comes back haltingly: that is not a rhythm
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
        s = self.settings
        if self._steps >= s.warm_steps and last - self._first_event >= s.warm_s:
            self.learned.warm = True

    def _learn(self, now: float, label: str, age: float) -> None:
        rhythm = self.learned.turned(now, label)
        # First steps are slow: they teach nothing of the others.
        if self.learned.warm or label == WORKING:
            rhythm.put(age)
            rhythm.steps += 1

    def _works(self) -> bool:
        """Some rank works outside of operations, and that can come to something.

        Not after another one was lost, nor where its node is silent: it worked when heard last.
        """
        busy = self._ranks.busy
        return bool(busy) and not self._ranks.lost and not (self._silent and busy <= self._silent)

    def _label(self) -> str:
        return WORKING if self._works() else f"phase:{self._ranks.phase}"

    # ----------------------------------------------------------------- what comes out

    def tick(self, now: float, hearing: Hearing = Hearing()) -> Stall | None:  # noqa: B008 - frozen
        """Call it every interval: a tick that comes late says that this machine was suspended."""
        before, self._ticked = self._ticked, now
        self._silent = hearing.silent
        if before is not None and now - before > max(5.0, 5 * self.settings.interval_s):
            self._shift(now - before - self.settings.interval_s)
            self._calm_until = now + 2 * self.settings.deaf_s
        if self._ranks.ranks and now - self._heard_at > self.settings.deaf_s:
            self._wait(now)
        if not self._ranks.living or self._stalled or now < self._calm_until:
            return None
        if not hearing.arrived and now < self._gathered_by(hearing):
            return None
        label = self._label()
        bound, why = self.bound(label)
        if self._counted(now, label) <= bound:
            return None
        self._stalled = True
        return Stall(now - self._last_event, bound, label.removeprefix("phase:"), why)

    def _gathered_by(self, hearing: Hearing) -> float:
        """When nodes that may still come have had their time."""
        return self._arriving_until + (0.0 if hearing.complete else self.settings.incomplete_s)

    def _counted(self, now: float, label: str) -> float:
        """Seconds without progress, and without work unless that is what the label is for."""
        if label == WORKING:
            return now - self._last_event
        return now - max(self._last_event, self._quiet_since)

    def suspicion(self, now: float, hearing: Hearing) -> Suspicion | None:
        """Whether there is evidence that the pause of now will not end. Call it after `tick`."""
        if self.settings.stall_after_s or self._stalled or now < self._calm_until:
            return None
        if self._refused == self._last_event or now < self._patient_until or self._came is None:
            return None
        if now < self._came + _LOOKS_S:
            return None
        if not hearing.complete and now < self._arriving_until + self.settings.incomplete_s:
            return None
        label = self._label()
        found = self._evidence(now, label, hearing)
        if found is None:
            return None
        longest = self.learned.of(label).longest_s
        certain = found in (evidence.DIED, evidence.STOPPED, evidence.SILENT)
        age = now - self._last_event if certain else self._counted(now, label)
        least = longest * (_TIMES_CERTAIN if certain else _TIMES_EVIDENT)
        if age < max(found.begin_s, least / 2):
            return None
        commit = max(found.commit_s, least) if found.commit_s else 0.0
        return Suspicion(
            event=self._last_event,
            age_s=age,
            commit_s=commit,
            phase=label.removeprefix("phase:"),
            why=found.why,
        )

    def _evidence(self, now: float, label: str, hearing: Hearing) -> evidence.Evidence | None:
        ranks = self._ranks
        if not ranks.boxes:
            first = self._came is not None and now < self._came + _FIRST_STACKS_S
            alike = bool(ranks.living) and ranks.still == ranks.living
            return evidence.STILL if first and alike and hearing.complete else None
        found = evidence.find(ranks, hearing)
        known = self.learned.warm and self.learned.of(label).steps >= ENOUGH
        if found is evidence.DIED and not known:
            return evidence.DIED_EARLY
        return found if known else None

    def quiet(self, now: float) -> bool:
        """Whether the pause of now is long enough to look more often."""
        if self._stalled or not self.learned.warm or not self._ranks.living:
            return False
        age, high = now - self._last_event, self.learned.of(self._label()).high_s
        return max(1.0, 1.5 * high) < age < 4 * max(self.settings.floor_s, high)

    def goes_on(self, suspicion: Suspicion) -> bool:
        """Whether there was progress since."""
        return self._last_event != suspicion.event

    def declare(self, now: float, suspicion: Suspicion) -> Stall:
        """The suspicion has lasted: it is a stall."""
        self._stalled = True
        age = now - self._last_event
        return Stall(age, suspicion.commit_s, suspicion.phase, suspicion.why)

    def dropped(self, now: float, suspicion: Suspicion) -> None:
        """It came to nothing: the job went on, or the capture showed no hang.

        Be more patient for a while.
        """
        if now > self._patient_until + _DROPPED_MOST_S:
            self._dropped = 0
        self._patient_until = now + min(_DROPPED_MOST_S, _DROPPED_S * 2**self._dropped)
        self._dropped = min(self._dropped + 1, 16)
        if not self.goes_on(suspicion):
            self._refused, self._stalled = suspicion.event, False

    def false_alarm(self, now: float) -> None:
        """The capture showed no hang: such an age is normal in this phase, too."""
        for label, age in self._pending.items():
            self._learn(now, label, age)
            if label in self.learned.rhythms:  # also before the first rhythm
                self.learned.rhythms[label].put(age)
        self._pending.clear()
        self._calm_until = now + max(30.0, now - self._last_event)
        self._stalled = False

    def bound(self, label: str) -> tuple[float, str]:
        """(seconds without progress that are still normal, where that figure is from)."""
        ranks = self._ranks
        if self.settings.stall_after_s:
            return self.settings.stall_after_s, "fixed by --stall-after"
        limit_s = bounds.limit_s(self.settings, self._timeouts.values())
        return bounds.bound(
            self.settings,
            self.learned,
            label,
            limit_s,
            boxes=bool(ranks.boxes),
            finished=bool(ranks.finished),
        )

    @property
    def stalled(self) -> bool:
        """Whether a stall was declared, and nothing has moved or been taken back since."""
        return self._stalled

    @property
    def ranks(self) -> int:
        """How many are known."""
        return len(self._ranks.ranks)

    @property
    def blind(self) -> bool:
        """Whether no rank has a black box."""
        return not self._ranks.boxes

    @property
    def living(self) -> int:
        """How many are not over."""
        return len(self._ranks.living)

    @property
    def lost(self) -> int:
        """How many have ended, and not cleanly."""
        return len(self._ranks.lost)

    def idle_s(self, rank: int, now: float) -> float:
        """Seconds since the last progress of this rank; 0 of one that was never reported."""
        known = self._ranks.ranks.get(rank)
        return max(0.0, now - known.event) if known is not None else 0.0

    @property
    def last_event(self) -> float:
        """The last progress of any rank, by the caller's clock."""
        return self._last_event

    def _wait(self, now: float) -> None:
        """Reports are under way that tell of progress: some nodes come back, or catch up, before others."""
        self._calm_until = max(self._calm_until, now + self.settings.deaf_s)
        self._recovering_until = max(self._recovering_until, now)

    def _shift(self, gap: float) -> None:
        """This machine was suspended, or slept: no rank made progress meanwhile, and none could."""
        self._ranks.shift(gap)
        self._heard_at += gap
        self._last_event += gap
        self._quiet_since += gap
        self._pending.clear()
