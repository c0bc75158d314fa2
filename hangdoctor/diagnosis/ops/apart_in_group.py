"""A ring of waits in which the members of one small group part, while those of its replicas agree.

Replicas may rightly make different calls (layers dropped at random, experts), so that no vote over
them decides. The members of one tensor-parallel group may not: the wrong call is among those that
part, and the others only wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from .divergence import Divergence, compare
from .history import History
from .scene import Scene

_MOST = 64  # ranks of a ring that are compared


def parted_members(scene: Scene, ring: Sequence[int]) -> dict[int, Divergence]:
    """The ranks of a ring that differ from a neighbour in their smallest group; {} where none does,
    where all do, and where no other group of the ring agrees.
    """
    ranks = [r for r in ring if r in scene.ops and scene.ops[r].operations]
    if len(ranks) < len(ring) or len(ring) > _MOST:
        return {}
    histories = {rank: History(scene, rank) for rank in ranks}
    parted: dict[int, Divergence] = {}
    agree = 0
    for one, other in _neighbours(scene, ranks):
        found = compare(histories[one], histories[other])
        back = compare(histories[other], histories[one])
        if found is None or back is None:
            agree += 1
        else:
            parted.setdefault(one, found)
            parted.setdefault(other, back)
    return parted if agree and len(parted) < len(ring) else {}


def _neighbours(scene: Scene, ranks: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs of ranks that are next to each other in the smallest group of several that both are in."""
    programs, pairs = scene.programs, set()
    for rank in ranks:
        mine = [scene.groups.members(uid, rank) for uid in scene.groups.of_rank(rank)]
        several = [members for members in mine if 1 < len(members) < scene.world_size]
        smallest = min(
            several, key=lambda members: (len(members), members[-1] - members[0]), default=[]
        )
        for one, other in pairwise(r for r in smallest if r in ranks):
            if programs.of(one) == programs.of(other):
                pairs.add((one, other))
    return sorted(pairs)
