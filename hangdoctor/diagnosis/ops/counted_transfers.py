"""The same transfer between another pair of ranks, by its place among all that a process has recorded.

A dump numbers the sends and receives of two ranks from the oldest that it holds, so that the numbers of
one pair mean nothing to another one. But every record has its place in all that its process has
recorded, and processes that run the same program record alike from one common collective on.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...model.operations import Operation
from .keys import P2P_NAMES, SENDS
from .scene import Scene


def has_places(scene: Scene, rank: int) -> bool:
    """Whether the records of the rank have their places."""
    ops = scene.ops.get(rank)
    return ops is not None and 0 < len(ops.operations) == len(ops.places)


def corresponding_peer(scene: Scene, rank: int, like: int, group: str, peer: int) -> int | None:
    """The rank that is to `like` what `peer` is to `rank` in the group; None where none is."""
    hop = scene.groups.hop(group, rank, peer)
    members = scene.groups.members(group, rank)
    if len(members) == scene.world_size:
        return like + hop if 0 <= like + hop < scene.world_size else None
    role = scene.groups.role(group)
    own = [uid for uid in scene.groups.of_rank(like) if scene.groups.role(uid) == role]
    if len(own) != 1:
        return None
    theirs = list(scene.groups.members(own[0], like))
    place = theirs.index(like) + hop
    return theirs[place] if 0 <= place < len(theirs) else None


def counted_by_peer(scene: Scene, rank: int, peer: int, other: int, op: Operation) -> int | None:
    """How much higher `peer` counts its transfers with `rank` than `other` those that correspond, of
    which `op` is one; None where the records do not show it.
    """
    if not (has_places(scene, peer) and has_places(scene, op.peer)):
        return None
    theirs = _other_sides(scene, op.peer, other, op)
    shift = _shift(scene, op.peer, peer, near=theirs[-1][0]) if theirs else None
    if shift is None:
        return None
    numbers = dict(_other_sides(scene, peer, rank, op))
    for place, number in theirs:
        if place + shift in numbers:
            return numbers[place + shift] - number
    first_place, first_number = theirs[0]
    if first_place + shift <= scene.ops[peer].places[-1][0]:
        return None
    return max(numbers.values(), default=0) - (first_number - 1)  # the peer has not come to any


def _other_sides(scene: Scene, holder: int, rank: int, op: Operation) -> list[tuple[int, int]]:
    """(place, number) of the holder's transfers with a rank, in the direction that ends such a one."""
    records = zip(scene.ops[holder].operations, scene.ops[holder].places, strict=True)
    return [
        (place, o.seq)
        for o, (place, _) in records
        if o.op in P2P_NAMES and o.peer == rank and (o.op in SENDS) != (op.op in SENDS)
    ]


def _shift(scene: Scene, theirs: int, peer: int, near: int) -> int | None:
    """How many more records `peer` had made by the collective that both made, the nearest to a place."""
    mine = {key: place for key, place in _collectives(scene, peer)}
    both = [(place, mine[key]) for key, place in _collectives(scene, theirs) if key in mine]
    if not both:
        return None
    place, same = min(both, key=lambda pair: abs(pair[0] - near))
    return same - place


def _collectives(scene: Scene, rank: int) -> Iterator[tuple[object, int]]:
    """(what makes it the same call on ranks of the same role, place) of each."""
    records = zip(scene.ops[rank].operations, scene.ops[rank].places, strict=True)
    for op, (place, _) in records:
        if op.op not in P2P_NAMES:
            yield (scene.groups.role(op.group), op.op, op.seq), place
