"""A job that is over, by its boxes: its operations show a hang only where nothing failed before.

Ranks that were alive and ended with the others have entered nothing since: a crash explains all of
that, and so does an end from outside that came while the job went on. A rank that ended after it had
waited for long, for one that did not come, is a consequence itself.
"""

from __future__ import annotations

import signal

from ...model.diagnosis import Kind
from ...model.log_facts import Ended, NoBeat, PythonError, Silent
from ...model.operations import RankOps
from ...model.pauses import first_end, is_long, usual_pause
from ..case import Case, op_of
from ..confidence import Ground, sure
from ..draft import Draft
from ..findings import Clue, Finding, RaisedAtTheEnd, Waiters
from ..findings.log_stories import DidNotEnd, HeartbeatStopped, StoppedRunning
from ..last_places import mark
from ..outsiders import finding_outside
from ..recorders import records_of
from ..view import RankView
from .called_apart import missing_beside
from .candidate import First
from .scene import Scene, ranks_named
from .threads import of_thread

_CRASH = frozenset({"dead", "error", "unreachable"})
_OTHER_CALLS = frozenset({"mismatch", "order", "p2p_unmatched"})
_KIND_OF: dict[Silent, Kind] = {"": "not_entered", "stopped": "stopped", "gil": "interpreter_lock"}
_ABORTS = (-signal.SIGABRT, 128 + signal.SIGABRT)


def settle(case: Case, draft: Draft, scene: Scene, found: First | None) -> First | None:
    """Drop what the operations say of a job that did not hang.

    Returns what the ends of the processes still name: None where an operation that the ranks
    disagreed about explains them. The library aborts whichever rank notices it first.
    """
    disagreed = [f for f in draft.findings if f.kind in _OTHER_CALLS]
    if found is not None and _other_calls(draft) and _waited_first(found):
        return None
    if disagreed and found is not None and _aborted(scene, found):
        draft.findings = disagreed
        draft.status = "failed"
        return None
    if found is not None and _cut_short(found, _blamed(draft)):
        draft.findings[0].add_clues(_raised_at_the_end(found))
        return None
    if found is not None and draft.findings and gave_up(found, _blamed(draft)):
        return None
    if found is not None and _guarded_itself(scene, found, _blamed(draft)):
        return None
    if found is not None and _killed_in_a_hang(case, draft, scene, found):
        return None
    missing = missing_beside(case, draft.findings, found) if found is not None else []
    if missing:
        draft.findings, draft.status = missing, "failed"
        return None
    stood = any(view.capture.left_s for view in case.gone) or _waited_long(case, scene)
    if _crashed(found) or not stood:
        draft.findings = []
        draft.status = None
        draft.waits = []
    return found


def _crashed(found: First | None) -> bool:
    """Whether a process failed that is named, and not one of its threads alone."""
    if found is None or not found.named or found.finding.kind not in _CRASH:
        return False
    return not any(map(of_thread, found.facts))


def gave_up(found: First, blamed: set[int]) -> bool:
    """Whether all that it names ended after a long wait, by what a guard does, but for the ranks
    that are blamed for the wait: their own guard may end those. Beside the job's log there are
    several facts of one end.
    """
    ends = [f for f in found.facts if isinstance(f, Ended | PythonError)]
    waited = {f.rank for f in ends if f.waited_s > 0}
    others = {f.rank for f in ends} - blamed
    return bool(others) and others <= waited


def _cut_short(found: First, blamed: set[int]) -> bool:
    """Whether all that it names are exceptions that the end of the whole job brought, of ranks for which the
    others waited.
    """
    errors = [f for f in found.facts if isinstance(f, PythonError)]
    stood = {f.rank for f in errors if f.stood_s}
    # Beside the job's log there are several facts of one exception.
    named = {f.rank for f in errors}
    return len(errors) == len(found.facts) and bool(named) and named <= stood & blamed


def _raised_at_the_end(found: First) -> list[Clue]:
    errors = [f for f in found.facts if isinstance(f, PythonError) and f.stood_s]
    return [Clue("log", (e.rank,), RaisedAtTheEnd(_words(e), e.stood_s)) for e in errors]


def _words(error: PythonError) -> str:
    return f"{error.error}: {error.message}" if error.message else error.error


def _guarded_itself(scene: Scene, found: First, blamed: set[int]) -> bool:
    """Whether all that it names are ranks for which the others waited, and which their own guard ended
    without a word after they had done nothing for long.
    """
    ends = [f for f in found.facts if isinstance(f, Ended)]
    # Beside a log there are several facts of one end.
    idle = {f.rank for f in scene.of(Ended) if f.waited_s > 0}
    named = {f.rank for f in ends}
    return len(ends) == len(found.facts) and bool(named) and named <= idle & blamed


def _killed_in_a_hang(case: Case, draft: Draft, scene: Scene, found: First) -> bool:
    """Whether somebody killed one rank and then all, when these had waited for another one for long."""
    kills = {f.code for f in scene.of(Ended) if f.rank >= 0} == {-signal.SIGKILL}
    blamed = _blamed(draft)
    others = bool(blamed) and blamed.isdisjoint(found.finding.ranks)
    return kills and others and _waited_long(case, scene)


def _other_calls(draft: Draft) -> bool:
    """Whether the operations show that ranks made different calls."""
    return any(f.kind in _OTHER_CALLS for f in draft.findings)


def _waited_first(found: First) -> bool:
    """Whether each rank that it names had waited for long in an operation before it ended, by what
    a guard does: then its guard ended it, whoever was to blame for the wait.
    """
    ends = [f for f in found.facts if isinstance(f, Ended | PythonError)]
    waited = {f.rank for f in ends if f.waited_s > 0}
    return bool(waited) and waited == {f.rank for f in ends}


def without_words(found: First | None) -> First | None:
    """None where all that is known of a rank is that it ended after a long wait."""
    if found is None or not gave_up(found, set()):
        return found
    return found if any(isinstance(f, PythonError) for f in found.facts) else None


def _blamed(draft: Draft) -> set[int]:
    """Ranks at which the waits end."""
    return {r for f in draft.findings if f.kind != "in_communication" for r in f.ranks}


def did_not_run(case: Case, draft: Draft, scene: Scene) -> First | None:
    """Ranks that did not end at a SIGTERM, or whose heartbeat had stopped: where all have entered
    the operation that the others had waited in for long, one that was stopped inside of it is what
    they waited for.
    """
    _add_heartbeats(draft, scene)
    still = [f for f in scene.of(NoBeat) if _was_awaited(case, f)]
    stayed = [f for f in scene.of(Ended) if f.stayed_s and f.rank >= 0]
    ranks = ranks_named(still or stayed)
    named = any(f.ranks and f.kind != "in_communication" for f in draft.findings)
    few = 2 * len(ranks) <= len(scene.everyone)
    if not ranks or named or not few or not _waited_long(case, scene):
        return None
    waited_in = draft.findings[0] if draft.findings else None
    draft.findings = []
    finding = Finding(
        kind="stopped",
        ranks=ranks,
        story=DidNotEnd(min((f.stayed_s for f in stayed), default=0.0)),
        confidence=sure(Ground.LOG_STAYED),
        nodes=scene.nodes(ranks),
    )
    if still:
        finding.confidence = sure(Ground.LOG_NO_BEAT)
        _tell_since(finding, waited_in, min(f.silent_s for f in still))
        outside = waited_in is None and not any(f.inside for f in still)
        if outside and not set(ranks) <= set(ranks_named(stayed)):
            _tell_outside(case, finding, still)
        if outside and any(_elsewhere(case, rank) for rank in ranks):
            finding.confidence = sure(Ground.LOG_NO_BEAT_ALONE)
    return First(finding, [*(still or stayed)], True)


def _was_awaited(case: Case, silent: NoBeat) -> bool:
    """Whether a rank that did not run is what the others waited for: a call that keeps the GIL while it
    waits in an operation may wait for them.
    """
    if silent.inside and silent.how != "gil":
        return True
    return not silent.inside and _all_others_wait(case, silent.rank)


def _all_others_wait(case: Case, rank: int) -> bool:
    """Whether the place of every other rank is in a wait for others, which no record shows; or
    elsewhere without moving, of a few beside those that wait: they are waited for as well.
    """
    others = [v for v in case.alive if v.rank != rank]
    elsewhere = _elsewhere(case, rank)
    few = 2 * len(elsewhere) < len(others)
    return bool(others) and few and all(v.motion == "still" for v in elsewhere)


def _elsewhere(case: Case, rank: int) -> list[RankView]:
    """The others that are in no wait for others."""
    waiting = {v.rank for v in case.waiting}
    return [v for v in case.alive if v.rank != rank and v.rank not in waiting]


def elsewhere_beside(case: Case, found: First) -> list[Finding]:
    """Of a job that is over: the ranks that stand elsewhere beside one that did not run, one
    finding for each place: the others wait for them as well.
    """
    silent = [f for f in found.facts if isinstance(f, NoBeat)]
    if not case.capture.over or not silent or found.finding.ranks != [silent[0].rank]:
        return []
    places: dict[object, list[RankView]] = {}
    for view in _elsewhere(case, silent[0].rank):
        if view.path:
            places.setdefault(view.place.at, []).append(view)
    beside = [finding_outside(case, group, case.waiting) for group in places.values()]
    for finding in beside:
        mark(case, finding)
        finding.confidence = min(finding.confidence, found.finding.confidence)
    return beside


def _tell_since(finding: Finding, waited_in: Finding | None, seconds: float) -> None:
    """The operation that all are in, and who waits there."""
    if waited_in is None or waited_in.waiters is None:
        finding.story = StoppedRunning(seconds)
        return
    finding.where = waited_in.where
    waiters = waited_in.waiters
    others = tuple(r for r in waiters.ranks if r not in finding.ranks)
    finding.waiters = Waiters(others, waiters.op, waiters.seconds) if others else None
    finding.story = StoppedRunning(seconds, waiters.op)


def _how(silent: list[NoBeat]) -> Silent:
    """What the signs of life of all of them agree on."""
    found = {fact.how for fact in silent}
    return found.pop() if len(found) == 1 else ""


def _tell_outside(case: Case, finding: Finding, silent: list[NoBeat]) -> None:
    """The rank was in no operation, and the others wait where no record shows it: it may as well have
    computed with the GIL held, at which its heartbeat stops, too.
    """
    others = [view for view in case.waiting if view.rank not in finding.ranks]
    op = op_of(others) if others else None
    how = _how(silent)
    finding.kind = _KIND_OF[how]
    seconds = min(fact.silent_s for fact in silent)
    finding.story = StoppedRunning(seconds, op, inside=False, how=how)


def say_where(draft: Draft, scene: Scene) -> None:
    """Where a rank was that the others waited for, by the exception that an interrupt raised in it."""
    frames = {e.rank: e.frame for e in scene.of(PythonError) if e.rule == "terminated" and e.frame}
    for finding in draft.findings:
        if finding.kind == "not_entered" and finding.frame is None and len(finding.ranks) == 1:
            finding.frame = frames.get(finding.ranks[0])


def _add_heartbeats(draft: Draft, scene: Scene) -> None:
    """Of ranks that the operations name, as evidence; who did not run could not come."""
    silent = {fact.rank: fact for fact in scene.of(NoBeat)}
    for finding in draft.findings:
        if finding.kind == "in_communication":
            continue
        stopped = [rank for rank in finding.ranks if rank in silent]
        for rank in stopped:
            of = silent[rank]
            finding.add_clues([Clue("silence", (rank,), HeartbeatStopped(of.silent_s, of.how))])
        if finding.kind == "not_entered" and stopped == finding.ranks:
            op = finding.waiters.op if finding.waiters is not None else None
            facts = [silent[rank] for rank in stopped]
            seconds, how = min(fact.silent_s for fact in facts), _how(facts)
            finding.kind = _KIND_OF[how]
            finding.story = StoppedRunning(seconds, op, inside=False, how=how)


def _aborted(scene: Scene, found: First) -> bool:
    """Whether the process that ended first was ended by an abort of its own."""
    ends = [f for f in scene.of(Ended) if f.rank in found.finding.ranks]
    return bool(ends) and all(f.code in _ABORTS for f in ends)


def _waited_long(case: Case, scene: Scene) -> bool:
    """Whether a rank had waited in an operation, when the first one ended, longer than the job ever
    did before; or in C++, by the place of its main thread, which is kept only of such a wait.
    """
    if case.waiting:
        return True
    every = list(records_of(case)[0].values())
    until = first_end(scene.by_boxes())
    longest = max((_longest_wait(ops, until) for ops in every), default=0.0)
    return is_long(longest, usual_pause(every, until))


def _longest_wait(ops: RankOps, until: float) -> float:
    entered = [o.entered_s for o in ops.unfinished() if o.entered_s > 0]
    return max(((until or ops.heartbeat_s) - at for at in entered), default=0.0)
