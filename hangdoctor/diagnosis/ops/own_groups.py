"""Groups that their own members make alone, in records: who makes them in another order than the others?"""

from __future__ import annotations

from collections.abc import Mapping

from ...model.operations import Operation
from ...text.ranges import member_runs
from .. import findings as f
from ..confidence import Ground, sure
from ..findings import Clue, Finding, Ring
from ..own_members import LOCAL, missed
from .facts import nodes_of, op_of, waiters_of, where_of
from .scene import Scene
from .waits import Instance

_SHOWN = 8  # ranks whose groups are evidence


def own_groups_finding(
    scene: Scene, instance: Instance, records: Mapping[int, Operation]
) -> Finding | None:
    """Who is all that such a group lacks; all of them where nothing singles one out, and None where they
    make no such groups.
    """
    asked = {rank: _members(op) for rank, op in records.items()}
    if not asked or not all(asked.values()):
        return None
    apart = missed(asked)
    ranks = sorted(asked) if apart is None else [apart[0]]
    own = op_of(scene, records[ranks[0]], ranks[0])
    return Finding(
        kind="order",
        ranks=ranks,
        story=Ring() if apart is None else f.OwnOrder(own, asked[apart[0]], *apart[1:]),
        confidence=sure(Ground.RING_BY_RECORDS if apart is None else Ground.OWN_ORDER),
        nodes=nodes_of(scene, ranks),
        where=where_of(scene, instance, records[ranks[0]], ranks),
        waiters=waiters_of(scene, instance) if apart is not None else None,
        clues=[Clue("ops", (r,), f.AsksFor(asked[r])) for r in sorted(asked)[:_SHOWN]],
    )


def _members(op: Operation) -> tuple[int, ...]:
    if op.op != "new_group" or not op.detail.startswith(LOCAL):
        return ()
    runs = member_runs(op.detail.removeprefix(LOCAL)) or []
    return tuple(rank for run in runs for rank in run)
