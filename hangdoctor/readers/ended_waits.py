"""What the ranks of a job that is over were waiting for when the first of them ended.

A guard of the program's own (a watchdog, an alarm, Ctrl-C) ends a rank that has waited for long: that
end follows from the wait. A rank whose heartbeat stopped long before did not run any more. And an
exception that no operation can have brought is a rank's own, however late it came.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from math import inf

from ..model.capture import RankCapture
from ..model.log_facts import AnyFact, Ended, NoBeat, PythonError, Silent
from ..model.operations import Operation, RankOps
from ..model.pauses import first_end, is_long, usual_pause
from .blackbox import Contents
from .box_place import LastPlace

_SET_UP = "init_process_group"
_SOON_S = 1.0  # an end is noted a moment after the operation that it left
_ABORTS = (-signal.SIGABRT, -signal.SIGINT, 128 + signal.SIGABRT)
_LONG_S = 5.0  # without progress, of ranks that poll
_HANDLES = 64  # the newest operations of a rank, which it may have in the air
_SHARED_S = 3.0  # between the guards of two ranks
_SEEN_S = 2.5  # between the last sight of a place and the end
_IDLE = 0.05  # of the time on the CPU: less is a wait
_SILENT_S = 5.0  # without a heartbeat, which comes once a second
_FRESH = 3.0  # times as long as the heartbeats of the ranks that ran
# What a rank may raise because another one has gone, without an operation: it waited for its file.
_OF_OTHERS = ("Timeout", "Connection", "BrokenPipe", "EOF", "FileNotFound", "OSError", "Cancelled")
_BY_SIGNAL = ("signal", "terminat", "killed", "timed out", "peer")


def mark_waits(facts: Sequence[AnyFact], boxes: Sequence[Contents]) -> None:
    """Ends and exceptions of ranks that had been waiting in an operation for long."""
    by_rank = {c.ops.rank: c.ops for c in boxes}
    places = {c.ops.rank: c.place for c in boxes}
    usual = usual_pause(by_rank.values(), first_end(facts))
    polled = Polled(boxes)
    for fact in facts:
        if not isinstance(fact, Ended | PythonError) or fact.rank not in by_rank:
            continue
        in_the_air = _is_shared(fact, facts)
        in_the_air |= isinstance(fact, Ended) and polled.until(fact.at)
        waited = _waited_s(by_rank[fact.rank], fact.at, in_the_air)
        if isinstance(fact, Ended):  # an exception says what it is
            waited = max(waited, _idle_s(places[fact.rank], fact.at))
        if _may_follow(fact) and is_long(waited, usual):
            fact.waited_s = waited


def mark_device_waits(facts: Sequence[AnyFact], ranks: Sequence[RankCapture]) -> None:
    """Ends of ranks whose hosts run ahead of their devices: a box shows their calls as done, and torch's
    recorder which of them the device never finished. NCCL's watchdog aborts such a rank.
    """
    recorded = {r.rank: r.recorded for r in ranks if r.recorded is not None}
    usual = usual_pause(recorded.values(), first_end(facts))
    for fact in facts:
        if not isinstance(fact, Ended) or fact.waited_s or fact.rank not in recorded:
            continue
        ops = recorded[fact.rank]
        entered = [op.entered_s for op in ops.unfinished() if op.entered_s > 0]
        if not ops.runs_ahead or not entered or not _may_follow(fact):
            continue
        waited = fact.at - min(entered)
        if is_long(waited, usual):
            fact.waited_s = waited


def _may_follow(fact: Ended | PythonError) -> bool:
    """Whether its end may be what a guard does after a wait: no signal that kills, and no error that
    a rule knows, as of a device.
    """
    if isinstance(fact, Ended):
        return not fact.left and (fact.code > 0 or fact.code in _ABORTS)
    return fact.rule == "terminated" or (fact.role == "cause" and not fact.rule)


def _is_shared(fact: Ended | PythonError, facts: Sequence[AnyFact]) -> bool:
    """Whether another rank raised the same error at about the same time, as guards do: then one
    that polled a handle waited, too.
    """
    if not isinstance(fact, PythonError) or not fact.error:
        return False
    errors = [f for f in facts if isinstance(f, PythonError) and f.rank != fact.rank]
    return any(f.error == fact.error and abs(f.at - fact.at) < _SHARED_S for f in errors)


class Polled:
    """Whether every rank had handles in the air at a moment, and none had got on for long before:
    all asked for them again and again, which uses the processor, until one of them gave up.
    """

    def __init__(self, boxes: Sequence[Contents]) -> None:
        self._flown = [_flown(contents.ops) for contents in boxes]
        since = [contents.ops.got_on_s for contents in boxes]
        self._since = max(since) if since and min(since) > 0 else 0.0

    def until(self, at: float) -> bool:
        """Whether that was so at this moment."""
        if not self._since or at <= self._since + _LONG_S:
            return False
        return all(any(begun < at < over for begun, over in flown) for flown in self._flown)


def _flown(ops: RankOps) -> list[tuple[float, float]]:
    """When each handle of its last ones was begun, and when it was over."""
    last = ops.operations[-_HANDLES:]
    begun = [o for o in last if o.asynchronous and o.op != "send"]
    return [(o.entered_s, o.left_s if o.state == "done" else inf) for o in begun]


def await_polled(facts: Sequence[AnyFact], boxes: Sequence[Contents]) -> None:
    """Where all polled their handles until one gave up, each waited for those that it had in the
    air.
    """
    ends = [f.at for f in facts if isinstance(f, Ended) and f.waited_s]
    if not ends or not Polled(boxes).until(min(ends)):
        return
    for contents in boxes:
        for operation in contents.ops.operations:
            if is_in_the_air(operation, min(ends)):
                operation.waited = True


def _waited_s(ops: RankOps, at: float, in_the_air: bool) -> float:
    """How long it had been in an operation at `at`: one that has not ended, or was left then; or
    that was in the air.
    """
    held = [o for o in ops.operations if _held(o, at) or (in_the_air and is_in_the_air(o, at))]
    entered = [o.entered_s for o in held if o.entered_s > 0]
    return at - min(entered) if entered else 0.0


def _idle_s(place: LastPlace | None, at: float) -> float:
    """How long its main thread had been at one place without work, outside of operations too, as where
    it waits for its data.
    """
    if place is None or place.spins or place.seen_s < at - _SEEN_S:
        return 0.0
    idle = at - place.idle_since_s
    at_work = place.idle_cpu_s > _IDLE * max(0.0, place.seen_s - place.idle_since_s)
    return 0.0 if at_work or not place.idle_since_s else idle


def _held(operation: Operation, at: float) -> bool:
    if operation.asynchronous and not operation.waited:
        return False
    if operation.state != "done":
        return operation.entered_s < at
    return operation.failed and abs(operation.left_s - at) <= _SOON_S


def is_in_the_air(operation: Operation, at: float) -> bool:
    """Whether a handle of it was kept at `at`; sends are given back whenever the program likes."""
    begun = operation.asynchronous and operation.op != "send" and operation.entered_s < at
    return begun and (operation.state != "done" or operation.left_s > at)


# ---------------------------------------------------------------------- heartbeats


def silent_ranks(boxes: Sequence[Contents], facts: Sequence[AnyFact]) -> list[NoBeat]:
    """Ranks whose heartbeat stopped long before the first end, while most others' went on.

    Ranks of one node are compared: the clocks of two may differ by more.
    """
    found = []
    for host in sorted({c.box.host for c in boxes}):
        here = [c for c in boxes if c.box.host == host]
        found += _silent_on(here, first_end(f for f in facts if f.node == host))
    return found


def _silent_on(boxes: Sequence[Contents], until: float) -> list[NoBeat]:
    """Those of one node; its newest heartbeat stands for an unknown `until`."""
    until = until or max(c.box.heartbeat_s for c in boxes)
    silent = {c.ops.rank: max(0.0, until - _last_sign(c)) for c in boxes}
    usual = sorted(silent.values())[(len(boxes) - 1) // 2]
    found = []
    for contents in boxes:
        seconds = silent[contents.ops.rank]
        runs = contents.box.state == "running" and not contents.box.ended_s
        runs = runs and not _has_not_begun(contents)
        late = runs and seconds > max(_SILENT_S, _FRESH * usual)
        if late and not _beats_alone(contents, until):
            found.append(_no_beat(contents, seconds, until))
    return found if 2 * len(found) <= len(boxes) else []


def _has_not_begun(contents: Contents) -> bool:
    """Whether all that it has done is to wait in the set-up: its heartbeat begins with its group."""
    made = contents.ops.operations
    return len(made) == 1 and made[0].op == _SET_UP and made[0].state != "done"


def _last_sign(contents: Contents) -> float:
    """When the rank last wrote anything into its box."""
    marks = [o.left_s or o.entered_s for o in contents.ops.operations]
    return max([contents.box.heartbeat_s, contents.box.ended_s, *marks[-1:]])


def _beats_alone(contents: Contents, until: float) -> bool:
    """Whether the process ran and its GIL was free: only the heartbeat's own thread was kept."""
    box = contents.box
    return box.pulse_s > until - _SILENT_S and box.lock_held_s == 0


def _how(contents: Contents, until: float) -> Silent:
    """Whether all of the process stood still, or native code kept the GIL."""
    box = contents.box
    since = box.heartbeat_s + _SEEN_S
    if box.pulse_s > until - _SILENT_S and 0 < box.lock_held_s <= since:
        return "gil"
    return "stopped" if 0 < box.pulse_s <= since else ""


def _no_beat(contents: Contents, seconds: float, until: float) -> NoBeat:
    box = contents.box
    says = f"the last heartbeat of this process, {seconds:.0f} s before the first rank ended"
    fact = NoBeat(silent_s=seconds, says=says, how=_how(contents, until))
    fact.rank, fact.node, fact.pid, fact.at = contents.ops.rank, box.host, box.pid, box.heartbeat_s
    fact.inside = any(not o.asynchronous for o in contents.ops.unfinished())
    return fact


# ---------------------------------------------------------------------- several of their own


def mark_independent(facts: Sequence[AnyFact], boxes: Sequence[Contents]) -> None:
    """Exceptions of ranks that no operation has reached since the first rank ended: it cannot have
    brought them.
    """
    first = first_end(facts)
    by_rank = {c.ops.rank: c.ops for c in boxes}
    for fact in facts:
        if not isinstance(fact, PythonError) or fact.role != "cause" or fact.at <= first:
            continue
        ops = by_rank.get(fact.rank)
        if ops is not None and not _of_others(fact):
            fact.independent = _untouched(ops, first)


def _of_others(error: PythonError) -> bool:
    said = error.message.lower()
    by_kind = any(kind in error.error for kind in _OF_OTHERS)
    return by_kind or not error.error or any(word in said for word in _BY_SIGNAL)


def _untouched(ops: RankOps, since: float) -> bool:
    """Whether it has communicated, and is out of every operation since then."""
    if not ops.has_communicated():
        return False
    return all(o.state == "done" and not o.failed and o.left_s <= since for o in ops.operations)
