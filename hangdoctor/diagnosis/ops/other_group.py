"""A call on another group than the others make it on, by pending operations alone.

Where no history is kept, the numbers show only that a rank has called one group too often. The line of
its call shows more: those around it make the call of that line on a group of another kind.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...model.operations import STORE, Operation
from .divergence import Divergence
from .keys import P2P_NAMES
from .scene import Scene

_AROUND = 256  # members of its groups that are asked


def on_other_group(scene: Scene, rank: int) -> Divergence | None:
    """The pending collective of the rank that all others around it make on another kind of group;
    None where there is none, or a history is kept.
    """
    ops = scene.ops[rank]
    if not ops.only_active:
        return None
    calls = list(_calls_around(scene, rank))
    for position, op in enumerate(ops.operations):
        if not op.site or op.op in P2P_NAMES or op.op in STORE:
            continue
        role = scene.groups.role(op.group)
        alike = [call for call in calls if (call[1].op, call[1].site) == (op.op, op.site)]
        roles = {scene.groups.role(call[1].group) for call in alike if call[1] is not op}
        if len(roles) == 1 and role not in roles:
            reference, theirs = next(call for call in alike if call[1] is not op)
            return Divergence(rank, reference, "group", op, theirs=theirs, position=position)
    return None


def _calls_around(scene: Scene, rank: int) -> Iterator[tuple[int, Operation]]:
    """Pending operations of those that it shares a group with, short of the whole job, and then its
    own.
    """
    around: dict[int, None] = {}
    for uid in scene.groups.of_rank(rank):
        members = scene.groups.members(uid, rank)
        if len(members) < scene.world_size:
            around.update(dict.fromkeys(members))
    others = [r for r in around if r != rank and r in scene.ops]
    for other in [*others[:_AROUND], rank]:
        for op in scene.ops[other].operations:
            yield other, op
