"""A group of a few ranks that was never set up, as one of them did not come: which, by the key that
the others waited for in the store.

The key ends in the number that the missing rank has in the group. torch numbers a group's members
by rising rank, so that a rank with as many members below it is the one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...model.log_facts import PythonError, StoreWait
from ...stacks.place_search import find_place
from ..confidence import Ground, sure
from ..findings import Finding, NeverReached, Op, Waiters
from .candidate import First
from .scene import Scene, ranks_named


def missing_member(scene: Scene, waits: Sequence[StoreWait]) -> First | None:
    """The only rank that can have this number; None where several can, or all have come."""
    keys = {wait.key for wait in waits}
    come = set(ranks_named(waits))
    if len(keys) != 1 or not come or not scene.whole:
        return None
    number = waits[0].awaited
    ranks = [r for r in scene.everyone if r not in come and _may_have(number, r, come)]
    met = {e.rank: e for e in scene.of(PythonError) if e.rank >= 0 and e.frames}
    if len(ranks) != 1 or not come <= set(met):
        return None
    place = find_place(met[min(come)].frames, blocked=True)
    op = Op(place.op or "a new group", frame=place.frame)
    finding = Finding(
        kind="not_entered",
        ranks=ranks,
        story=NeverReached(op),
        confidence=sure(Ground.LOG_STORE_HOST),
        nodes=scene.nodes(ranks),
        waiters=Waiters(tuple(sorted(come)), op, 0.0),
    )
    finding.where.op = op.name
    own = met.get(ranks[0])
    if own is not None:
        finding.frame = find_place(own.frames, blocked=True).frame
        finding.where.frame = str(finding.frame)
    shown = [own] if own is not None else []
    return First(finding, [*shown, *waits], True)


def _may_have(number: int, rank: int, come: Collection[int]) -> bool:
    """Whether a rank may be the one with this number, with these others in the group."""
    below = sum(other < rank for other in come)
    return below <= number <= rank
