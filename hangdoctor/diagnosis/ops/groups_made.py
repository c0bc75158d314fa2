"""One rank that did not make all the groups that the others made.

torch.distributed.new_group is for all ranks, also for those that are in no such group: each counts
the groups that it has made, and meets the others under that number. Who leaves a call out comes to
every later one a number too early, and waits in its new group for members that are elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection

from ...model.operations import Operation
from .divergence import Divergence
from .scene import Scene

_OTHERS = 2  # that agree, at least


def groups_left_out(scene: Scene, ring: Collection[int]) -> dict[int, Divergence]:
    """The one rank of a ring of waits whose groups are those of all other ranks without one of them; {}
    where the records do not reach back to the first group.
    """
    if any(ops.overwritten or ops.only_active for ops in scene.ops.values()):
        return {}
    made = {rank: _made(scene, rank) for rank in scene.ops}
    found = {rank: d for rank in ring if (d := _left_out(scene, rank, made)) is not None}
    return found if len(found) == 1 else {}


def _made(scene: Scene, rank: int) -> list[Operation]:
    return [op for op in scene.ops[rank].operations if op.op == "new_group" and op.detail]


def _call(op: Operation) -> tuple[str, str]:
    return (op.detail, op.site)


def _left_out(scene: Scene, rank: int, made: dict[int, list[Operation]]) -> Divergence | None:
    others = {other: list(map(_call, calls)) for other, calls in made.items() if other != rank}
    if len(others) < _OTHERS or rank not in made:
        return None
    whole = max(others, key=lambda other: len(others[other]))
    theirs, mine = others[whole], list(map(_call, made[rank]))
    if any(theirs[: len(calls)] != calls for calls in others.values()):
        return None  # groups that only their own members make
    pairs = enumerate(zip(mine, theirs, strict=False))
    at = next((i for i, (own, their) in pairs if own != their), None)
    if at is None or mine[at:] != theirs[at + 1 : at + 1 + len(mine) - at]:
        return None
    own = made[rank][at]
    position = next(i for i, op in enumerate(scene.ops[rank].operations) if op is own)
    return Divergence(rank, whole, "skipped", own, theirs=made[whole][at], position=position)
