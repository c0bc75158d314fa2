"""Lines that a paste cut before their end: what they still tell counts, what they lack is no difference.

[Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=81, OpType=ALLR
"""

from __future__ import annotations

from collections.abc import Iterable

from ...model.log_facts import AnyFact, TimedOut


def completed(facts: list[AnyFact]) -> list[AnyFact]:
    """The facts, with the operation of each cut wait as the others of its number have it."""
    waits = [f for f in facts if isinstance(f, TimedOut)]
    whole = [f for f in waits if not f.cut]
    dropped: set[int] = set()
    own = {(f.rank, f.group_rank, f.file, f.seq) for f in whole}
    for wait in (f for f in waits if f.cut):
        if (wait.rank, wait.group_rank, wait.file, wait.seq) in own:
            dropped.add(id(wait))  # a line that was only broken in two
            continue
        like = _like(wait, whole)
        if like is not None:
            wait.op, wait.group = like.op, wait.group or like.group
            wait.numel_in, wait.numel_out = like.numel_in, like.numel_out
        elif not wait.op:
            dropped.add(id(wait))
    return [f for f in facts if id(f) not in dropped]


def _like(wait: TimedOut, whole: Iterable[TimedOut]) -> TimedOut | None:
    """A whole line of the same operation, as far as the cut one shows."""
    for other in whole:
        same_group = not wait.group or wait.group == other.group
        if other.seq == wait.seq and same_group and (not wait.op or wait.op == other.op):
            return other
    return None
