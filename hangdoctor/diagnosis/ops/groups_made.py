"""One rank that did not make all the groups that the others made.

torch.distributed.new_group is for all ranks, also for those that are in no such group: each counts
the groups that it has made, and meets the others under that number. Who leaves a call out comes to
every later one a number too early, and waits in its new group for members that are elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...model.operations import Operation
from ..own_members import LOCAL
from .divergence import Divergence
from .scene import Scene

_OTHERS = 2  # that agree, at least
_VARIANTS = 8  # different lists of groups; more are those of ranks that make groups of their own

Call = tuple[str, str]  # members and line


def groups_left_out(scene: Scene, ring: Collection[int]) -> dict[int, Divergence]:
    """The one rank of a ring of waits whose groups are those of all other ranks without one of them; {}
    where the records do not reach back to the first group.
    """
    if any(ops.overwritten or ops.only_active for ops in scene.ops.values()):
        return {}
    by_list: dict[tuple[Call, ...], list[int]] = {}
    for rank in scene.ops:
        calls = tuple((op.detail, op.site) for op in _made(scene, rank))
        by_list.setdefault(calls, []).append(rank)
    if len(by_list) > _VARIANTS or len(scene.ops) <= _OTHERS:
        return {}
    alone = {ranks[0]: calls for calls, ranks in by_list.items() if len(ranks) == 1}
    found: dict[int, Divergence] = {}
    for rank in alone.keys() & set(ring):
        others = [calls for calls in by_list if calls != alone[rank]]
        whole = max(others, key=len, default=())
        at = _left_out(alone[rank], whole, others)
        if at is not None:
            found[rank] = _divergence(scene, rank, by_list[whole][0], at)
    return found if len(found) == 1 else {}


def _made(scene: Scene, rank: int) -> list[Operation]:
    made = [op for op in scene.ops[rank].operations if op.op == "new_group" and op.detail]
    return [op for op in made if not op.detail.startswith(LOCAL)]


def _left_out(
    mine: Sequence[Call], theirs: Sequence[Call], others: Sequence[Sequence[Call]]
) -> int | None:
    """Which of their groups is not among mine, where all others have made theirs, as far as they are."""
    if any(theirs[: len(calls)] != calls for calls in others):
        return None  # groups that only their own members make
    at = next(
        (i for i, calls in enumerate(zip(mine, theirs, strict=False)) if calls[0] != calls[1]), None
    )
    if at is None or mine[at:] != theirs[at + 1 : len(mine) + 1]:
        return None
    return at


def _divergence(scene: Scene, rank: int, other: int, at: int) -> Divergence:
    mine, theirs = _made(scene, rank)[at], _made(scene, other)[at]
    position = next(i for i, op in enumerate(scene.ops[rank].operations) if op is mine)
    return Divergence(rank, other, "skipped", mine, theirs=theirs, position=position)
