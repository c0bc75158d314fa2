"""The captures of a collector's core: asked for, under way, held on evidence, being diagnosed.

No I/O and no clock, as in `state`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from ..model.capture import JobCapture
from ..text.durations import duration
from ..watch.stall_evidence import Hearing
from ..watch.stall_watch import Stall, StallWatch, Suspicion
from ..watch.straggler_watch import Straggler
from . import capture_reason
from .capture_reason import CaptureReason, Trigger
from .capture_round import Round
from .evidence_capture import Early
from .instructions import Conclude, Counters, Instruction, Log, Node, Settings

KEEP_LEAST = 16  # operations of a rank in a capture, however many ranks there are
_SETTLE_S = 0.5  # of a stall that boxes tell of: the ranks have been stuck for seconds


class Captures:
    """One at a time. `nodes` is the core's own table, looked at when a capture begins and ends."""

    def __init__(
        self,
        settings: Settings,
        watchdog: StallWatch,
        counters: Counters,
        nodes: Mapping[str, Node],
        session: str,
    ) -> None:
        self.settings, self.watchdog, self.counters = settings, watchdog, counters
        self.nodes = nodes
        self.session = session
        self.round: Round | None = None
        self.early = Early()
        self.concluding = ""  # id of the one that is diagnosed now
        self._straggler: Straggler | None = None
        self._asked: deque[CaptureReason] = deque(maxlen=8)
        self._rounds = 0
        self._left: Round | None = None  # dropped, while agents may still be capturing for it

    @property
    def free(self) -> bool:
        """Whether another one may begin."""
        return self.round is None and not self.concluding

    def ask(self, words: str) -> None:
        """A person wants one, as soon as may be, and says why."""
        self._asked.append(capture_reason.asked(words))

    def asked(self, now: float) -> list[Instruction]:
        """Begin what was asked for first, when no agent captures for a round that was dropped."""
        if not self._asked or not self.free:
            return []
        if self._left is not None and not self._left.complete(now):
            return []
        self._left = None
        return self.begin(self._asked.popleft(), now)

    def late(self, node: str, id: str) -> None:
        """A node has answered to a round that is no more."""
        if self._left is not None and self._left.id == id:
            self._left.answered(node)

    def suspect(self, suspicion: Suspicion, hears: Hearing, now: float) -> list[Instruction]:
        """Begin one on evidence."""
        out = self.begin(capture_reason.stall(suspicion.why), now, hears)
        if self.round is not None:
            self.early.begin(suspicion, self.round.id, hears, now)
        return out

    def ended(self, lost: int, now: float) -> list[Instruction]:
        """What is left of a job that has ended; of one that was stuck before, that is known."""
        if self.watchdog.stalled:
            return []
        who = "1 of its ranks has" if lost == 1 else f"{lost} of its ranks have"
        what = f"the job is over, and {who} not finished"
        return [
            Log(f"{what}: capturing what is left"),
            *self.begin(capture_reason.ended(what), now),
        ]

    def unstarted(self, words: str, now: float) -> list[Instruction]:
        """Begin one of a job that has no rank yet."""
        return [Log(f"{words}: capturing"), *self.begin(capture_reason.start(words), now)]

    def straggle(self, slow: Straggler, now: float) -> list[Instruction]:
        """Begin one of a rank that the others wait for."""
        self._straggler = slow
        least = min(share for rank, share in slow.shares.items() if rank != slow.rank)
        waited = f"it waited {slow.shares[slow.rank]} % of {duration(slow.window_s)}"
        what = f"rank {slow.rank} arrives last: {waited}, the others {least} % or more"
        return [Log(f"{what}: capturing"), *self.begin(capture_reason.slow(what), now)]

    def stalled(self, stall: Stall, now: float) -> list[Instruction]:
        """A capture of it; the one that is under way or held on evidence serves as well."""
        said = Log(
            f"no rank has made progress for {duration(stall.age_s)} ({stall.why}): capturing"
        )
        reason = capture_reason.stall(_passed(stall), now - stall.age_s)
        early, id = self.early.held, self.early.id
        self.early.end()
        if early is not None:
            return [said, *self._conclude(id, early, reason)]
        if self.round is not None and self.round.id == id:
            self.round.reason, self.round.early = reason, False
            return [said]
        return [said, *self.begin(reason, now)]

    def go_on(self, now: float) -> list[Instruction]:
        """With a capture on evidence: drop it, wait, or conclude it."""
        early, suspicion = self.early, self.early.suspicion
        assert suspicion is not None
        if self.concluding == early.id:
            return []
        if not self.watchdog.living or early.is_void(self.watchdog, self.nodes):
            return self._drop(now)
        if not early.is_due(self.watchdog, self.nodes.values()) or early.held is None:
            return []
        stall = self.watchdog.declare(now, suspicion)
        said = Log(f"no rank has made progress for {duration(stall.age_s)}: {stall.why}")
        words = f"{_passed(stall)}: {stall.why}"
        reason = capture_reason.stall(words, now - stall.age_s)
        capture, early.held = early.held, None
        return [said, *self._conclude(early.id, capture, reason, early=True)]

    def _drop(self, now: float) -> list[Instruction]:
        """The capture on evidence came to nothing: no incident."""
        suspicion, id = self.early.suspicion, self.early.id
        self.early.end()
        if self.round is not None and self.round.id == id:
            self._left, self.round = self.round, None
        if suspicion is None:
            return []
        self.counters.dropped += 1
        self.watchdog.dropped(now, suspicion)
        passed = f"a pause of {duration(suspicion.age_s)} ({suspicion.why})"
        return [Log(f"{passed} turned out not to be a hang: the capture is dropped")]

    def begin(
        self, reason: CaptureReason, now: float, hears: Hearing | None = None
    ) -> list[Instruction]:
        """Ask all nodes for a capture; `hears` is given where it rests on evidence."""
        if self.round is not None or self.concluding:
            self._asked.append(reason)
            return []
        s = self.settings
        self._rounds += 1
        of_stall = reason.trigger is Trigger.STALL and not self.watchdog.blind
        stood = hears is not None or of_stall
        settle_s = min(s.settle_s, _SETTLE_S) if stood else s.settle_s
        id = f"{self.session}-{self._rounds}"
        self.round = Round(id, reason, now, limit_s=s.capture_s + s.patience_s, settle_s=settle_s)
        self.round.early = hears is not None
        ranks = sum(len(n.ranks) for n in self.nodes.values())
        keep = max(KEEP_LEAST, min(s.keep_ops, s.keep_all_ops // max(1, ranks)))
        silent = hears.nodes if hears is not None else ()
        nodes = self.nodes.values()
        return list(self.round.begin(nodes, now, s.silent_s, keep_ops=keep, silent=silent))

    def finish(self, now: float, wall: float) -> list[Instruction]:
        """Hand the round that is under way on, if it is complete."""
        assert self.round is not None
        if not self.round.complete(now):
            return []
        done, self.round = self.round, None
        if done.early:
            self.early.held = self._joined(done, now, wall)
            return self.go_on(now)
        if done.reason.trigger is Trigger.STALL and not self.watchdog.stalled:
            return [Log("the job makes progress again; the capture is dropped")]
        capture = self._joined(done, now, wall)
        slow, self._straggler = self._straggler, None
        if slow is not None and done.reason.trigger is Trigger.SLOW:
            capture.slowest, capture.waited = slow.rank, slow.shares
            capture.waited_s = slow.window_s
        return self._conclude(done.id, capture, done.reason)

    def _joined(self, done: Round, now: float, wall: float) -> JobCapture:
        return done.join(self.nodes.values(), now, wall, self.settings.expected)

    def _conclude(
        self,
        id: str,
        capture: JobCapture,
        reason: CaptureReason,
        early: bool = False,
    ) -> list[Instruction]:
        self.concluding = id
        capture.notes = [str(reason)]
        return [Conclude(id, capture, reason, early)]

    def concluded(self, id: str, status: str, now: float) -> list[Instruction]:
        """The diagnosis of a capture: "healthy" takes a stall back, "" was not kept."""
        if id == self.concluding:
            self.concluding = ""
        if self.early.suspicion is not None and id == self.early.id:
            if status != "hang":
                return self._drop(now)
            self.early.end()
        if status == "healthy" and self.watchdog.stalled:
            self.counters.false_alarms += 1
            self.watchdog.false_alarm(now)
            said = "the capture shows that the job makes progress: no incident"
            return [Log(f"{said}; pauses of this length count as normal from now on")]
        self.counters.incidents += bool(status)
        return []


def _passed(stall: Stall) -> str:
    """``no progress for 6.3 s (a stall from 6 s on)``."""
    return f"no progress for {duration(stall.age_s)} (a stall from {duration(stall.bound_s)} on)"
