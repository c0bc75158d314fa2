"""Operations of a job that hung, as they were when a signal asked its ranks to end, and they did not end
of it at once.

A handler of SIGTERM that saves or tells the others, and what runs as the exception of Ctrl-C unwinds,
enter operations that the rank had not come to: in the record they look as if it had.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from ..model.log_facts import Ended, JobLogs, PythonError
from ..model.operations import Operation
from ..model.process_end import ProcessEnd
from .blackbox import Contents
from .box_place import is_stuck, signs_until

_MAY_FOLLOW = ("", "terminated")  # rules of errors that a handler or an exit may raise
_ASKED = (-15, -2, 143, 130)  # unhandled, or by a handler
_AT_ONCE_S = 3.0  # between the ends of all processes
_BEAT_S = 1.5  # between two heartbeats, at most
_MOST = 16  # operations of one rank that a handler and the way out enter
_OWN_CLOCK = "SIGALRM"  # a guard that the program sets itself, for what it does then


def as_at_the_signal(
    boxes: Sequence[Contents], logs: JobLogs | None, ends: Sequence[ProcessEnd]
) -> float:
    """Changes the boxes' operations, and what the ranks' ends are taken for; when the signal came, or 0
    where none found the job hanging.
    """
    at = next((t for t in _times(boxes) if _was_last(boxes, t) and _hung(boxes, t)), 0.0)
    if at:
        _ends_follow(logs, at)
    else:
        other = _first_other(boxes, ends)
        at = other if other and _hung(boxes, other) else _last_beat(boxes)
    for contents in boxes if at else ():
        contents.ops.operations = _before(contents.ops.operations, at)
        if contents.ops.got_on_s > at:
            contents.ops.got_on_s = 0.0
    return at


def _ends_follow(logs: JobLogs | None, at: float) -> None:
    """No rank's end or exception after it is the first of its own."""
    for fact in logs.facts if logs is not None else ():
        if isinstance(fact, PythonError) and fact.at > at and fact.rule in _MAY_FOLLOW:
            fact.role = "consequence"
        elif isinstance(fact, Ended) and fact.at > at:
            fact.first = False


def _first_other(boxes: Sequence[Contents], ends: Sequence[ProcessEnd]) -> float:
    """When the first process that is no rank was asked to end, as a child that a rank waits for; 0 where
    not all ranks ended at about the same time.
    """
    ranks = {c.box.pid for c in boxes}
    of_ranks = [end.at for end in ends if end.pid in ranks]
    asked = [end.at for end in ends if end.code in _ASKED and end.pid not in ranks]
    if not of_ranks or len(of_ranks) < len(boxes) or not asked:
        return 0.0
    at = min((t for t in asked if t >= min(of_ranks) - _AT_ONCE_S), default=0.0)
    return at if at and max(of_ranks) - at <= _AT_ONCE_S else 0.0


def _last_beat(boxes: Sequence[Contents]) -> float:
    """When the last heartbeat of all ranks came, where all were killed in the moment after it, and a few
    of a job that hung entered an operation in between: what held these had been killed before them.
    """
    if any(c.box.ended_s or c.ops.finished or c.box.uncounted for c in boxes) or len(boxes) < 2:
        return 0.0
    beat = max(c.box.heartbeat_s for c in boxes)
    freed = [c for c in boxes if any(o.entered_s > beat for o in c.ops.operations)]
    soon = all(o.entered_s - beat <= _BEAT_S for c in freed for o in c.ops.operations)
    rest = [c for c in boxes if c not in freed]
    few = 0 < len(freed) < len(boxes) and soon
    return beat if few and all(_was_idle(c, beat) for c in rest) else 0.0


def _times(boxes: Sequence[Contents]) -> list[float]:
    caught = [s for c in boxes for s in c.signals if s.name != _OWN_CLOCK]
    return sorted({t for s in caught for t in (s.first_s, s.last_s)})


def _was_last(boxes: Sequence[Contents], at: float) -> bool:
    """Whether no rank trained on after it: jobs are asked for their state by signals, too, and one that
    is asked to end may first end its epoch.
    """
    return all(_is_over(c, at) for c in boxes)


def _is_over(contents: Contents, at: float) -> bool:
    ops = contents.ops
    later = [o for o in ops.operations if o.entered_s > at]
    went_on = contents.stepped_s > at or any(m.at_s > at for m in ops.marks)
    return len(later) <= _MOST and not went_on


def _hung(boxes: Sequence[Contents], at: float) -> bool:
    """Whether a rank had been idle for longer than its pauses before."""
    return any(_was_idle(c, at) for c in boxes)


def _was_idle(contents: Contents, at: float) -> bool:
    ops = contents.ops
    left = contents.box.ended_s and contents.box.ended_s <= at
    if left or ops.finished or contents.box.uncounted:
        return False
    signs = signs_until(ops, at)
    others = [t for t in (ops.got_on_s, contents.stepped_s) if t <= at]
    last = max([*signs[-1:], *others, contents.box.created_s])
    return is_stuck(ops, signs, at - last)


def _before(operations: Sequence[Operation], at: float) -> list[Operation]:
    """What the rank had entered then; what it left later, it was in."""
    every = [o for o in operations if o.entered_s <= at]
    return [_as_then(o) if o.left_s > at else o for o in every]


def _as_then(operation: Operation) -> Operation:
    if not operation.asynchronous:
        return structs.replace(operation, state="entered", left_s=0.0, failed=False)
    # The wait for its handle is what failed.
    waited = operation.waited or operation.failed
    return structs.replace(operation, state="started", left_s=0.0, failed=False, waited=waited)
