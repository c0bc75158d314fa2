"""Two sides of one number, of which none is larger: who made a call that no rank had made before, while the other side
is in one that all have made round after round.

That side left the usual round: by a call under a condition that holds on some ranks, or by leaving the loop before the
others. The other reading, that all were to make the new call, is possible and rarer.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...model.operations import STORE, Operation
from .scene import Scene
from .waits import Instance

_ROUNDS = 3  # of the usual call, on each member
Side = dict[int, Operation]  # what its ranks are in


def made_a_new_call(scene: Scene, instance: Instance, sides: Sequence[Sequence[int]]) -> list[int]:
    """The ranks of the side with the new call; [] where both calls are new, or both are usual."""
    found = [_calls(scene, instance, ranks) for ranks in sides]
    if len(found) != 2 or any(len(f) < len(s) for f, s in zip(found, sides, strict=True)):
        return []
    members = [rank for side in sides for rank in side]
    for mine, others in (found, found[::-1]):
        usual = next(iter(others.values()))
        begins = [_begins(scene, rank, usual) for rank in members]
        if 0 not in begins and all(_is_new(scene, op, max(begins)) for op in mine.values()):
            return sorted(mine)
    return []


def _calls(scene: Scene, instance: Instance, ranks: Sequence[int]) -> Side:
    found = {rank: scene.find(rank, instance.key) for rank in ranks}
    return {rank: op for rank, op in found.items() if op is not None and op.op not in STORE}


def _begins(scene: Scene, rank: int, op: Operation) -> int:
    """The number of the first such call of this rank, which had made it round after round; 0 where it had not."""
    ops = scene.ops.get(rank)
    before = (
        [o.seq for o in ops.operations if _is_one_call(o, op) and o.seq < op.seq] if ops else []
    )
    return before[0] if len(before) >= _ROUNDS else 0


def _is_new(scene: Scene, op: Operation, begun: int) -> bool:
    """Whether no rank has made this call under another number since the rounds had begun."""
    return not any(
        one.seq != op.seq and (one.seq > begun or one.site == op.site != "")
        for ops in scene.ops.values()
        for one in ops.operations
        if _is_one_call(one, op)
    )


def _is_one_call(one: Operation, other: Operation) -> bool:
    """By their lines; where a record has none, by their shapes."""
    if one.op != other.op:
        return False
    if one.site and other.site:
        return one.site == other.site
    return one.shapes == other.shapes
