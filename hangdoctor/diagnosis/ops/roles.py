"""Which ranks run the same program as a given one: its own role in other replicas, and its
neighbours in it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...model.layout import Layout
from .group_members import GroupTable
from .scene import Scene

_REPLICAS = 6  # ranks of the same role that are compared


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


def references(scene: Scene, rank: int, suspects: set[int]) -> list[int]:
    """Ranks of the same program to compare with, first those that are not suspected."""
    return _pick(scene, scene.programs.like(rank), suspects, _REPLICAS)


def in_step_first(scene: Scene, rank: int) -> list[int]:
    """Ranks of the same program, those first that share its smallest group: they are the closest to
    it in time.
    """
    shared: dict[int, int] = {}
    for uid in scene.groups.of_rank(rank):
        members = scene.groups.members(uid, rank)
        if 1 < len(members) < scene.world_size:
            for member in members:
                shared[member] = min(shared.get(member, scene.world_size), len(members))
    like = scene.programs.like(rank)
    return sorted(like, key=lambda r: shared.get(r, scene.world_size))


def kin(scene: Scene, rank: int, suspects: set[int]) -> list[int]:
    """Ranks of other pipeline stages: not the same program, but the same calls on the groups that
    all stages have.
    """
    return _pick(scene, scene.programs.others(rank), suspects, _REPLICAS)


def _pick(scene: Scene, ranks: list[int], suspects: set[int], limit: int) -> list[int]:
    known = [r for r in ranks if r in scene.ops and scene.ops[r].operations]
    return sorted(known, key=lambda r: r in suspects)[:limit]
