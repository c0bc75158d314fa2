"""Whether another sample some seconds later would decide what two could not."""

from __future__ import annotations

from ..model.capture import JobCapture
from ..model.diagnosis import Cause, Diagnosis
from . import diagnose, held_by_work
from .case import open_case
from .ops.lone_culprit import last_waits, settling_s

MORE_PAUSE_S = 0.7  # before another capture: no multiple of the time between two samples


def wants_more(capture: JobCapture) -> bool:
    """Whether more samples would show that a rank is slow: in those that there are, all others slept
    in a collective while it was at work, and nothing else is wrong.
    """
    if not held_by_work.may_be_chance(open_case(capture)):
        return False
    return diagnose(capture, lenient=True).status in ("healthy", "unknown", "slow")


def pause_s(capture: JobCapture, diagnosis: Diagnosis) -> float:
    """Seconds after which a rank that is only slow would have got on; 0 where no verdict depends on
    it.

    Only waits that the job itself has shown to be usual raise the question: the alternative "slow"
    of a cause.
    """
    doubted = [
        c
        for c in diagnosis.causes
        if c.kind != "slow" and any(a.kind == "slow" for a in c.alternatives)
    ]
    return round(max((_usual(capture, c) for c in doubted), default=0.0), 1)


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
