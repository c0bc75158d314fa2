"""In which order the ranks of a job that is over ended, and which of them was the first of its own.

The parent of all ranks of a node sees their ends in their order. What a launcher or a person ended,
and what waited for the end of its own exit, is not where that order says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ..model.log_facts import AnyFact, Ended, GlooTimeout, PythonError, Role
from ..model.process_end import ProcessEnd
from .blackbox import Contents

_BY_LAUNCHER = (-15, -9)
_ASKED = (-15, -2, 143, 130)  # to end, by the launcher or a person: unhandled, or by a handler
_FROM_OUTSIDE = ("KeyboardInterrupt", "SystemExit", "SignalException")
_GRACE_S = 3.0  # between SIGTERM and SIGKILL, at least
_NOTICED_S = 1.0  # after which `run` has seen an end, at most


def has_left(contents: Contents | None) -> bool:
    """Whether its program ended by itself, without an exception: `sys.exit` or its last line."""
    return contents is not None and contents.box.ended_s > 0 and not contents.box.end_text


def left_at(end: ProcessEnd, contents: Contents | None) -> float:
    """When it left its program; the process may have ended later."""
    if contents is None or not has_left(contents):
        return end.at
    return min(end.at, contents.box.ended_s)


def own_interrupt(facts: Iterable[AnyFact]) -> None:
    """An interrupt of one rank alone is its own; that of several comes from outside."""
    errors = [f for f in facts if isinstance(f, PythonError)]
    interrupts = [e for e in errors if e.error == "KeyboardInterrupt"]
    if len(interrupts) == 1 and len(errors) > 1:
        interrupts[0].role = "cause"


def own_termination(facts: Sequence[AnyFact], ends: Sequence[ProcessEnd]) -> None:
    """SIGTERM ends all ranks at once where a launcher or a person sends it, and a launcher sends it
    when one has ended. A rank that it ended before any other, and that a neighbour lost before the
    next one ended, was the first.
    """
    order = sorted((end for end in ends if end.code), key=lambda end: end.at)
    if not order or order[0].code != -15:
        return
    next_at = order[1].at if len(order) > 1 else order[0].at + _NOTICED_S
    lost = [error.at for error in _errors(facts, "consequence")]
    if _errors(facts, "cause") or not lost:
        return
    if not order[0].at - _NOTICED_S <= min(lost) < next_at:
        return
    for fact in facts:
        if isinstance(fact, Ended) and fact.rank == order[0].rank:
            fact.first = True


def left_first(
    facts: Sequence[AnyFact],
    ends: Sequence[ProcessEnd],
    by_process: dict[tuple[str, int], Contents],
) -> list[ProcessEnd]:
    """Ranks that ended with code 0 before any other, when the others then lost them; or that left
    their program before, and were ended by the launcher while they waited for its end.
    """
    lost = _errors(facts, "consequence")
    named = any(isinstance(f, Ended) and f.first for f in facts)
    if not lost or _errors(facts, "cause") or named:
        return []
    boxes = by_process.values()
    spoke = {c.ops.rank for c in boxes if c.box.end_text}
    began = min(c.box.created_s for c in boxes)
    of_job = [e for e in ends if e.rank >= 0 and e.at >= began]
    gone = {e.pid: left_at(e, by_process.get((e.node, e.pid))) for e in of_job}
    failed = min((e.at for e in of_job if e.code), default=0.0)
    until = min(failed, min(f.at for f in lost) + _NOTICED_S)
    left = [e for e in of_job if gone[e.pid] <= until and _quietly(e, gone[e.pid])]
    quiet = [e for e in left if e.rank not in spoke]
    return quiet if len(quiet) <= len(lost) else []


def _quietly(end: ProcessEnd, at: float) -> bool:
    """Whether it ended with code 0, or was ended after it had left."""
    return not end.code or (end.code in _BY_LAUNCHER and at < end.at)


def _errors(facts: Sequence[AnyFact], role: Role) -> list[PythonError]:
    return [f for f in facts if isinstance(f, PythonError) and f.role == role]


def date_by_last_operation(facts: Sequence[AnyFact], boxes: Iterable[Contents]) -> None:
    """An exception of its own that a rank noted after others' waits had reached their limit was
    raised before, if it had not come to their operation: a clean-up may last longer than the limit.
    """
    limits = [f for f in facts if isinstance(f, GlooTimeout)]
    waited = {f.rank for f in limits}
    first = min((f.at for f in limits), default=0.0)
    last = {c.ops.rank: c.ops.operations[-1] for c in boxes if len(c.ops.operations)}
    for error in _errors(facts, "cause"):
        operation = last.get(error.rank)
        if operation is None or error.rank in waited or error.error in _FROM_OUTSIDE:
            continue
        if 0 < operation.left_s < first < error.at and not operation.failed:
            error.at = operation.left_s


def mark_first(facts: Sequence[AnyFact], world_size: int, left: Collection[int] = ()) -> None:
    """The parent sees ends in their order: the first that no launcher caused is the first. All
    ranks that were killed at one moment were killed from outside, and none was the first; those that had `left`
    by themselves before are not missed among these.
    """
    every = [f for f in facts if isinstance(f, Ended)]
    asked = [f.at for f in every if f.code in _ASKED]
    for end in every:
        end.stayed_s = _stayed(end, asked)
    ends = [f for f in every if f.code not in _ASKED and not f.stayed_s]
    if not ends:
        return
    first = min(ends, key=lambda f: f.at)
    # A consequence may be noted before: connections close a moment before their process has ended.
    if any(error.at < first.at for error in _errors(facts, "cause")):
        return
    together = [f for f in ends if f.code == first.code and f.at - first.at < _NOTICED_S]
    everyone = len({*left, *(f.rank for f in together)}) == world_size
    if first.code == -9 and everyone and len(together) > 1:
        return
    for end in together:
        end.first = True


def _stayed(fact: Ended, asked: Sequence[float]) -> float:
    """How long after the others had ended at a SIGTERM the launcher killed it; 0 where that is not
    how it ended.
    """
    if fact.code != -9 or "memory" in fact.by or not asked:
        return 0.0
    late = fact.at - min(asked)
    return late if late > _GRACE_S else 0.0
