"""A rank that stays with the partner of all earlier rounds, whose place another rank has taken.

After a stage has moved to a spare, or a plan was made anew, the new partner sends to it, or
receives from it, for the first time, and the old one does neither any more: two ranks agree on the
new plan, and this one does not know it. A rank that one receives from in turn has been served
before.
"""

from __future__ import annotations

from ...model.operations import Operation
from ..confidence import Ground, sure
from ..findings import Clue, Finding, OtherPartners
from .facts import in_op, nodes_of, op_of, place, waiters_of, where_of
from .keys import P2P_NAMES, SENDS
from .scene import Scene
from .waits import Instance, WaitGraph

_ROUNDS = 2  # with the old partner, at least


def with_old_partner(scene: Scene, graph: WaitGraph) -> Finding | None:
    """The rank, where exactly one shows that."""
    found = [one for i in graph.instances if (one := _redirected(scene, i)) is not None]
    if len(found) != 1:
        return None
    instance, rank, own = found[0]
    new = instance.waiters[0]
    finding = Finding(
        kind="p2p_unmatched",
        ranks=[rank],
        story=OtherPartners(
            op_of(scene, own, rank),
            sends_to=(own.peer,) if own.op in SENDS else (),
            receives_from=() if own.op in SENDS else (own.peer,),
            awaited_by=(new,),
        ),
        confidence=sure(Ground.OLD_PARTNER),
        nodes=nodes_of(scene, [rank]),
        where=where_of(scene, instance, None, [rank]),
        waiters=waiters_of(scene, instance),
        clues=[Clue("ops", (instance.waiters[0],), in_op(scene, instance))],
    )
    return place(scene, finding)


def _redirected(scene: Scene, instance: Instance) -> tuple[Instance, int, Operation] | None:
    """(what the new partner waits in, the rank, its own transfer with the old one)."""
    if instance.key.transfer is None or len(instance.waiters) != 1 or len(instance.targets) != 1:
        return None
    new, rank = instance.waiters[0], instance.targets[0]
    blocking = scene.frontier(rank).blocking if rank in scene.ops else []
    if len(blocking) != 1 or blocking[0].op not in P2P_NAMES or blocking[0].peer < 0:
        return None
    own = blocking[0]
    alike = (own.op in SENDS) != (instance.sample.op in SENDS)
    if not alike or own.peer == new or not _has_gone_on(scene, own.peer):
        return None
    before = [op for op in _transfers(scene, rank) if op.op == own.op and op.site == own.site]
    kept = len(before) > _ROUNDS and {op.peer for op in before} == {own.peer}
    first = [op for op in _transfers(scene, new) if op.peer == rank]
    whole = new in scene.ops and not scene.ops[new].overwritten
    return (instance, rank, own) if kept and whole and len(first) == 1 else None


def _has_gone_on(scene: Scene, rank: int) -> bool:
    """Whether the old partner waits in a call of another kind: one that is stuck, stopped or gone
    neither sends nor receives, too.
    """
    if rank in scene.held or rank not in scene.ops or not scene.known(rank):
        return False
    blocking = scene.frontier(rank).blocking
    return bool(blocking) and all(op.op not in P2P_NAMES for op in blocking)


def _transfers(scene: Scene, rank: int) -> list[Operation]:
    """The sends and receives that its records still have."""
    ops = scene.ops[rank].operations if rank in scene.ops else []
    return [op for op in ops if op.op in P2P_NAMES]
