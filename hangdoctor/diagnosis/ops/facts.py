"""Facts that several passes put into their findings: operations, who waits how long, and where."""

from __future__ import annotations

from ...model.diagnosis import Where
from ...model.operations import Operation
from ..findings import Finding, InOp, Op, Waiters
from .keys import P2P_NAMES
from .scene import Scene
from .waits import Instance

_LOOKED_AT = 64  # waiters whose times are compared
_JUST_ENTERED_S = 0.001
_UNGROUPED = frozenset({"init_process_group", "store_wait"})


def op_of(scene: Scene, op: Operation, rank: int) -> Op:
    """An operation as findings name it; `rank` took part in it."""
    if op.op in _UNGROUPED:
        return Op(op.op, site=op.site)
    peer = op.peer if op.op in P2P_NAMES else None
    made = op.detail if op.op == "new_group" else ""
    return Op(op.op, op.seq, scene.groups.ref(op.group), peer, site=op.site, made=made)


def sample_of(scene: Scene, instance: Instance) -> Op:
    """The operation that an instance's first waiter is in."""
    return op_of(scene, instance.sample, instance.waiters[0])


def other_side(scene: Scene, instance: Instance) -> Op | None:
    """The recv that answers a send, or the other way round, as its rank recorded it; None for a
    collective.
    """
    transfer = instance.key.transfer
    if transfer is None:
        return None
    first = instance.waiters[0]
    rank = transfer.destination if first == transfer.source else transfer.source
    found = _own_record(scene, instance, rank) if rank in scene.frontiers else None
    return op_of(scene, found, rank) if found is not None else None


def waited_s(scene: Scene, instance: Instance) -> float:
    """The longest that one of its waiters has been in it, in seconds by that rank's own clock; 0
    where nothing shows it.
    """
    longest = 0.0
    for rank in instance.waiters[:_LOOKED_AT]:
        op = _own_record(scene, instance, rank)
        # A capture takes seconds: boxes are read, and operations entered, after it has begun.
        now = max(scene.evidence.taken_s, scene.ops[rank].heartbeat_s)
        if op is not None and op.entered_s > 0 and now > 0:
            longest = max(longest, now - op.entered_s, _JUST_ENTERED_S)
    return longest


def _own_record(scene: Scene, instance: Instance, rank: int) -> Operation | None:
    for op in scene.frontiers[rank].active:
        if op.seq == instance.key.number and op.group == instance.key.group:
            return op
    return None


def waiters_of(scene: Scene, instance: Instance | None) -> Waiters | None:
    """Who waits in it, and how long."""
    if instance is None:
        return None
    ranks = tuple(sorted(instance.waiters))
    return Waiters(ranks, sample_of(scene, instance), waited_s(scene, instance))


def in_op(scene: Scene, instance: Instance, everyone: bool = False) -> InOp:
    """The clue that ranks are in an instance."""
    return InOp(sample_of(scene, instance), everyone)


def where_of(
    scene: Scene, instance: Instance | None, op: Operation | None, ranks: list[int]
) -> Where:
    """Place of a finding: the operation that does not finish, and the frame of the first culprit
    that has one.
    """
    where = _where_ranks_are(scene, ranks)
    sample = op or (instance.sample if instance else None)
    if sample is not None:
        where.group = scene.groups.name(sample.group)
        where.group_ranks = _members(scene, instance, sample, ranks)
        where.op, where.seq = sample.op, sample.seq
        if where.iteration is None and sample.iteration >= 0:
            where.iteration = sample.iteration
    return where


def _where_ranks_are(scene: Scene, ranks: list[int]) -> Where:
    where = Where()
    frames = [scene.evidence.places[r] for r in ranks if r in scene.evidence.places]
    if frames:
        where.frame = str(frames[0])
    own = next((scene.ops[r] for r in ranks if r in scene.ops), None)
    if own is not None:
        where.iteration = own.iteration if own.iteration >= 0 else None
        where.phase = own.phase or None
    return where


def _members(
    scene: Scene, instance: Instance | None, sample: Operation, ranks: list[int]
) -> list[int]:
    transfer = instance.key.transfer if instance is not None else None
    if transfer is not None:
        return sorted((transfer.source, transfer.destination))
    return list(scene.groups.members(sample.group, ranks[0]))


def nodes_of(scene: Scene, ranks: list[int]) -> list[str]:
    """Nodes of these ranks, as far as they are known."""
    nodes = scene.evidence.nodes
    return sorted({nodes[r] for r in ranks if r in nodes})


def place(scene: Scene, finding: Finding) -> Finding:
    """The finding with the frame and the doing of the first of its ranks whose place is known."""
    for rank in finding.ranks:
        if rank in scene.evidence.places:
            finding.frame = scene.evidence.places[rank]
            finding.doing = scene.evidence.doing.get(rank)
            break
    return finding
