"""Operations of a job that is over, as they were when its first wait reached gloo's limit, when a
rank gave up its wait, or when the job was ended from outside.

Afterwards the record no longer shows the hang: the operation that reached its limit, or that a
handler of SIGTERM left, has ended with an exception, and ranks of other groups that went on were
ended in the middle of operations that were no waits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import structs

from ..model.log_ends import BY_ITSELF
from ..model.log_facts import AnyFact, Ended, Finished, GlooTimeout, JobLogs, PythonError
from ..model.operations import P2P, Operation, RankOps
from ..model.pauses import first_end
from .blackbox import Contents
from .ended_waits import is_in_the_air

_SOON_S = 1.0  # an end is noted a moment after the operation that it left
_BY_HANDLER = (143, 130)  # exit codes of handlers of SIGTERM and SIGINT
_BY_SIGNAL = (-15, -9, -2, *_BY_HANDLER)
_AFTERMATH_S = 0.5  # no limit is as short
_FREED_S = 0.5  # from a rank's exception to the next call of who gets its lock
_BATCH = 8  # transfers that a rank waits for at once
_STORE_LIMIT = "store_timeout"  # the rule of a wait in the store that reached its limit


def as_at_the_limit(boxes: Sequence[Contents], ends: JobLogs) -> None:
    """Changes the boxes' operations; nothing where no wait reached its limit or was left by a
    handler.
    """
    reached = {f.rank: f.at for f in ends.facts if _ends_a_wait(f) and f.at > 0}
    if not reached:
        _reopen_left_at_the_end(boxes, ends.facts)
        _leave_out_after_a_death(boxes, ends.facts)
        return
    first = min(reached.values())
    for contents in boxes:
        first = min(first, _failed_at(contents.ops, reached.get(contents.ops.rank, 0.0)))
    for contents in boxes:
        ops = contents.ops
        at = reached.get(ops.rank, 0.0)
        before = _without_aftermath(ops.operations, at)
        changed = _reopened(before, at, first)
        if changed is None and len(before) < len(ops.operations):
            changed = before
        changed = changed or _without_later(ops, first)
        if changed is not None:
            ops.freed = _is_freed(ops, first)
            ops.operations = changed


def _ends_a_wait(fact: AnyFact) -> bool:
    if isinstance(fact, Ended):
        return fact.code in _BY_HANDLER or fact.waited_s > 0
    if isinstance(fact, PythonError):
        return fact.waited_s > 0 or fact.rule == _STORE_LIMIT
    return isinstance(fact, GlooTimeout)


def _reopen_left_at_the_end(boxes: Sequence[Contents], facts: Sequence[AnyFact]) -> None:
    """Of a job that was ended from outside alone: an operation that failed when the first ranks had
    been ended is one that its rank was in until then.
    """
    first = first_end(facts)
    by_signal = any(isinstance(fact, Ended) for fact in facts)
    if not first or not by_signal or not all(_from_outside(fact) for fact in facts):
        return
    for contents in boxes:
        lost = _with_lost(list(contents.ops.operations), first)
        if lost is not None:
            contents.ops.operations = lost


def _with_lost(every: list[Operation], first: float) -> list[Operation] | None:
    """With the newest operations unfinished that failed when the first ranks had been ended."""
    newest = every[-_BATCH:]
    lost = [_awaited(o) if _is_lost(o, first) else o for o in newest]
    return [*every[:-_BATCH], *lost] if lost != newest else None


def _is_lost(operation: Operation, first: float) -> bool:
    """Whether it failed when the first ranks had been ended; of a handle, the wait for it did."""
    return operation.failed and operation.entered_s < first <= operation.left_s + _SOON_S


def _leave_out_after_a_death(boxes: Sequence[Contents], facts: Sequence[AnyFact]) -> None:
    """Where a signal of its own ended one rank first: without what others entered after it and did not
    complete. A program that catches the loss of the connection goes on to calls that say nothing.
    """
    deaths = [f for f in facts if isinstance(f, Ended) and f.first and f.code in BY_ITSELF]
    if len(deaths) != 1 or deaths[0].at <= 0:
        return
    for contents in boxes:
        every = contents.ops.operations
        kept = [o for o in every if o.entered_s <= deaths[0].at or not (o.failed or _is_open(o))]
        if contents.ops.rank != deaths[0].rank and len(kept) < len(every):
            contents.ops.operations = kept


def _is_open(operation: Operation) -> bool:
    return operation.state != "done"


def _from_outside(fact: AnyFact) -> bool:
    """Whether it is no sign of an end of the rank's own."""
    if isinstance(fact, Ended):
        return fact.code in _BY_SIGNAL and not fact.left
    if isinstance(fact, PythonError):
        return fact.role == "consequence"
    return not isinstance(fact, Finished)


def _reopen(operation: Operation) -> Operation:
    return structs.replace(operation, state="entered", left_s=0.0, failed=False)


def _awaited(operation: Operation) -> Operation:
    """As it was before its wait failed: of a handle, the wait for it is one that shows."""
    return structs.replace(_reopen(operation), waited=operation.asynchronous)


def _without_aftermath(operations: Sequence[Operation], at: float) -> list[Operation]:
    """Without what failed as soon as it was entered, at the rank's own limit `at`: a handler called it,
    once the limit had ended the wait that counts.
    """
    every = list(operations)
    while at and every and every[-1].failed and _lasted(every[-1]) < _AFTERMATH_S:
        every.pop()
    return every


def _lasted(operation: Operation) -> float:
    return operation.left_s - operation.entered_s


def _reopened(every: list[Operation], at: float, first: float) -> list[Operation] | None:
    """With the operation that reached the limit as one that has not ended; or that the rank was in
    at the first limit, and lost its peers in: `at` is 0 where it reached none itself.
    """
    if every and at and is_in_the_air(every[-1], first):
        batch = _with_transfers(every, at)
        if batch is not None:  # it waited for another handle than the last one
            return batch
        polled = structs.replace(every[-1], state="entered", left_s=0.0, waited=True)
        return [*every[:-1], polled]
    if not every or not every[-1].failed:
        return _with_transfers(every, at) if at else _with_lost(every, first)
    if every[-1].left_s > at and not _is_lost(every[-1], first):
        return None
    return [*every[:-1], _awaited(every[-1])]


def _with_transfers(every: list[Operation], at: float) -> list[Operation] | None:
    """With those sends and receives of the last batch unfinished whose handles reached the limit,
    and those whose handles were let go of as the exception left the function: the rank had not come
    to wait for them. Others of the batch may have ended before.
    """
    newest = every[-_BATCH:]
    failed = [o for o in newest if o.failed and o.op in P2P and abs(o.left_s - at) <= _SOON_S]
    if not failed:
        return None
    limit = min(o.left_s for o in failed)
    dropped = [o for o in newest if _was_dropped(o, limit)]
    open_again = {id(o): _awaited(o) for o in failed} | {id(o): _reopen(o) for o in dropped}
    return [*every[:-_BATCH], *(open_again.get(id(o), o) for o in newest)]


def _was_dropped(operation: Operation, limit: float) -> bool:
    """Whether the end of its handle came after the exception of another one's, and not its own."""
    begun = operation.op in P2P and operation.asynchronous and operation.entered_s < limit
    return begun and not operation.failed and limit < operation.left_s


def _failed_at(ops: RankOps, at: float) -> float:
    """When the wait that reached its limit failed: what the rank says of it at `at` comes after."""
    soon = [
        o.left_s for o in ops.operations[-_BATCH:] if o.failed and 0 <= at - o.left_s <= _SOON_S
    ]
    return min(soon, default=math.inf)


def _is_freed(ops: RankOps, first: float) -> bool:
    last = ops.operations[-1] if ops.operations else None
    return last is not None and first < last.entered_s <= first + _FREED_S


def _without_later(ops: RankOps, first: float) -> list[Operation] | None:
    """Without what the rank entered after the first limit and did not complete: it came to it in
    consequence, as when the end of the rank that had waited gave a lock free.
    """
    every = ops.operations
    kept = [o for o in every if o.entered_s <= first or not (o.failed or _is_open(o))]
    return kept if len(kept) < len(every) else None
