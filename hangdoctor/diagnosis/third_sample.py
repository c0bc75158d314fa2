"""Whether another sample some seconds later would decide what two could not."""

from __future__ import annotations

from itertools import pairwise

from ..model.capture import JobCapture
from ..model.diagnosis import Cause, Diagnosis
from ..model.operations import RankOps
from . import gil, held_by_work, waited_for
from .case import Case, open_case
from .ops.lone_culprit import last_waits, settling_s
from .sleepers import SLEEPS, own_threads
from .view import RankView

MORE_PAUSE_S = 0.7  # before another capture: no multiple of the time between two samples
_PATIENCE_S = 8.0  # for a step of a job that has not said how long its steps are
_MAY_GO_ON = frozenset({"busy", "not_entered", "data_wait", "checkpoint_wait", "interpreter_lock"})
_ONE_SLOW = "one rank may be slow; capturing again to see whether the others mostly wait for it"
_GO_ON = "ranks were asleep at their lines; capturing again to see whether they go on"
_SOME_GO_ON = "some ranks went on, and others were found at one place; capturing again to see whether these go on"
_LOOKED_BACK = 5  # iterations
_LONGER = 1.3  # than these: it is none of them
_AT_MOST_S = 12.0  # for such a step: most of a long one have begun before


def why_more(capture: JobCapture, diagnosis: Diagnosis) -> str:
    """What more samples would show, "" for nothing: that a rank is slow, where in those that there are
    the others slept in a collective while it was at work; or that ranks which slept at their lines
    go on, or that the others do where some did. Nothing else is wrong then.
    """
    if diagnosis.status not in ("healthy", "unknown", "slow"):
        return ""
    case = open_case(capture)
    if held_by_work.may_be_chance(case) or waited_for.may_be(case):
        return _ONE_SLOW
    if diagnosis.status != "unknown" or not _may_show_more(case):
        return ""
    if _sleep_at_their_lines(case):
        return _GO_ON
    return _SOME_GO_ON if _some_go_on(case) else ""


def _may_show_more(case: Case) -> bool:
    """Whether all ranks were seen alive, in fewer samples than are enough."""
    if not case.alive or case.gone or case.unseen or case.unread:
        return False
    return held_by_work.samples_of(case) < held_by_work.ENOUGH


def _some_go_on(case: Case) -> bool:
    """Whether some ranks went on, and all others ran where they are, in no call that they may be stuck
    in.
    """
    rest = [view for view in case.alive if not view.got_on]
    at_one_place = ("stirred", "running")
    return 0 < len(rest) < len(case.alive) and all(
        v.motion in at_one_place and v.place.kind == "code" and not v.stopped for v in rest
    )


def _sleep_at_their_lines(case: Case) -> bool:
    """Whether all ranks ran between the samples, and slept for a time at the lines where they were, but
    for those that a sample has found elsewhere since.
    """
    asleep = [view for view in case.alive if not view.got_on]
    return bool(asleep) and all(map(_slept, asleep))


def _slept(view: RankView) -> bool:
    awoke = view.motion == "stirred" and view.place.kind == "code"
    return awoke and any(thread.syscall in SLEEPS for thread in own_threads(view))


def pause_s(capture: JobCapture, diagnosis: Diagnosis) -> float:
    """Seconds after which a rank that is only slow would have got on; 0 where no verdict depends on
    it.

    Waits that the job itself has shown to be usual raise the question (the alternative "slow" of a
    cause), and a culprit that computes, sleeps or waits for its data loader: its job may step on.
    """
    doubted = [
        c
        for c in diagnosis.causes
        if c.kind != "slow" and any(a.kind == "slow" for a in c.alternatives)
    ]
    usual = max((_usual(capture, c) for c in doubted), default=0.0)
    return round(usual or _until_next_step(capture, diagnosis), 1)


def _until_next_step(capture: JobCapture, diagnosis: Diagnosis) -> float:
    """Seconds until the job would have made another step, where the one culprit may go on by itself."""
    if capture.over or len(diagnosis.causes) != 1:
        return 0.0
    [cause] = diagnosis.causes
    culprits = [v for v in open_case(capture).alive if v.rank in cause.ranks]
    alone = cause.kind == "device_wait" and cause.where.op is None
    if not (alone or cause.kind in _MAY_GO_ON) or not any(map(_may_go_on, culprits)):
        return 0.0
    if cause.kind == "interpreter_lock":
        return _PATIENCE_S  # whatever a thread does beside the steps, it may end
    known = [ops for r in capture.ranks() if (ops := r.ops) is not None]
    left = [s for ops in known if (s := _left_of_step(ops, capture.taken)) is not None]
    return min(max(0.0, *left), _AT_MOST_S) if left else _PATIENCE_S


def _may_go_on(view: RankView) -> bool:
    """Whether its own thread runs, sleeps for a time, or waits for workers that load data, or for the
    GIL of a thread that runs.
    """
    if view.stopped or view.thread is None:
        return False
    at_work = view.motion in ("running", "looping", "moved") or view.thread.syscall in SLEEPS
    if gil.is_awaited(view):
        return not gil.asleep(gil.holders(view))
    return at_work or view.place.kind == "data"


def _left_of_step(ops: RankOps, now: float) -> float | None:
    """Seconds until an iteration has lasted longer than the last ones; None where there were too few,
    at most 0 where it has.
    """
    begun = [mark.at_s for mark in ops.marks if mark.kind == "iteration"][-_LOOKED_BACK - 1 :]
    if len(begun) < 3:
        return None
    longest = max(later - earlier for earlier, later in pairwise(begun))
    return begun[-1] + _LONGER * longest - now


def _usual(capture: JobCapture, cause: Cause) -> float:
    members = set(cause.where.group_ranks or ())
    found = [0.0]
    for ops in (
        r.ops
        for r in capture.ranks()
        if r.ops is not None and r.rank in members and r.rank not in cause.ranks
    ):
        # A send or receive has two members, of a group that has more.
        groups = {g.uid for g in ops.groups if members <= set(g.ranks)}
        found.append(settling_s(last_waits(ops, cause.where.op or "", groups)))
    return max(found)
