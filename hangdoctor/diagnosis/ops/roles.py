"""Which ranks run the same program as a given one: its own role in other replicas, and its
neighbours in it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...model.layout import Layout
from ...model.operations import RankOps
from .group_members import GroupTable
from .keys import P2P_NAMES
from .scene import Scene

_REPLICAS = 6  # ranks of the same role that are compared
_NEIGHBOURS = 3  # tensor-parallel neighbours, and as many of theirs in another replica


def working_layout(scene: Scene) -> Layout | None:
    """The job's layout, or one that its groups imply: neighbours, then strides, then the rest as
    the pipeline.
    """
    if scene.layout is not None and scene.layout.world_size == scene.world_size:
        return scene.layout
    sizes = _named_sizes(scene) or _strided_sizes(scene)
    tp, dp = sizes.get("tp", 1), sizes.get("dp", 1)
    if not sizes or scene.world_size % (tp * dp):
        return None
    pp = scene.world_size // (tp * dp)
    return Layout(dp=dp, pp=pp, tp=tp) if sizes.get("pp", pp) == pp else None


def _some_groups(scene: Scene) -> Iterable[tuple[GroupTable, str, int, int]]:
    """(table, uid, size, stride) of the groups of a few ranks: all ranks of a role have alike
    ones.
    """
    some = sorted(scene.ops)
    for rank in some[:: max(1, len(some) // 16)]:
        for group in scene.ops[rank].groups:
            size, stride = scene.groups.role(group.uid)[:2]
            yield scene.groups, group.uid, int(size), int(stride)


def _named_sizes(scene: Scene) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for table, uid, size, _ in _some_groups(scene):
        axis = table.axis(uid)
        if axis in ("tp", "dp", "pp"):
            sizes[axis] = size
    return sizes if "dp" in sizes else {}


def _strided_sizes(scene: Scene) -> dict[str, int]:
    by_stride = {
        stride: size
        for _, _, size, stride in _some_groups(scene)
        if stride > 0 and 1 < size < scene.world_size
    }
    if 1 not in by_stride:
        return {}
    tp = by_stride[1]
    return {"tp": tp, "dp": by_stride[tp]} if tp in by_stride else {"dp": tp}


def references(
    scene: Scene, layout: Layout | None, rank: int, suspects: set[int]
) -> list[tuple[int, int]]:
    """Ranks to compare with and the weight of each one's vote, first those that are not suspected."""
    if layout is None:
        return [(other, 1) for other in _alike(scene, rank, suspects)]
    replicas = _pick(scene, layout.same_role(rank), suspects, _REPLICAS)
    if len(replicas) >= 3:
        return [(other, 1) for other in replicas]
    beside = [r for r in layout.group("tp", rank) if r != rank]
    neighbours = _pick(scene, beside, suspects, _NEIGHBOURS)
    of_theirs = [r for other in neighbours for r in layout.same_role(other)]
    theirs = _pick(scene, of_theirs, suspects, _NEIGHBOURS)
    weight = 2 if neighbours else 1
    voters = [(other, weight) for other in replicas]
    return voters + [(other, 1) for other in neighbours + theirs]


def kin(scene: Scene, layout: Layout | None, rank: int, suspects: set[int]) -> list[int]:
    """Ranks of other pipeline stages: not the same program, but the same calls on the groups that
    all stages have.
    """
    if layout is None:
        return []
    mine = layout.coordinates(rank)
    dp, tp = mine["dp"], mine["tp"]
    stages = [pp for pp in range(layout.pp) if pp != mine["pp"]]
    same_replica = {layout.rank(pp, dp, tp) for pp in stages}
    other_replicas = {layout.rank(pp, (dp + pp) % layout.dp, tp) for pp in stages}
    return _pick(scene, sorted(same_replica | other_replicas), suspects, _REPLICAS)


def _pick(scene: Scene, ranks: list[int], suspects: set[int], limit: int) -> list[int]:
    known = [r for r in ranks if r in scene.ops and scene.ops[r].operations]
    return sorted(known, key=lambda r: r in suspects)[:limit]


def _alike(scene: Scene, rank: int, suspects: set[int]) -> list[int]:
    """Without a layout: ranks with the same kinds of groups, and with partners at the same
    distances.
    """

    def kind(r: int) -> tuple[object, ...]:
        return ({scene.groups.role(g.uid) for g in scene.ops[r].groups}, _partners(scene.ops[r]))

    mine = kind(rank)
    found: list[int] = []
    for other, ops in scene.ops.items():
        if other != rank and ops.operations and kind(other) == mine:
            found.append(other)
            if len(found) >= 32:
                break
    return _pick(scene, found, suspects, _REPLICAS)


def _partners(ops: RankOps) -> set[tuple[str, int]]:
    """To which rank a rank sends and from which rank it receives, as distances: the stages of a pipeline differ
    in that.
    """
    return {(o.op, o.peer - ops.rank) for o in ops.operations if o.op in P2P_NAMES and o.peer >= 0}
