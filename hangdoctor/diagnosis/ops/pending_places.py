"""How far a rank with pending operations alone has come, beside one of the same role."""

from __future__ import annotations

from collections.abc import Iterator

from ...model.operations import Operation
from .keys import P2P_NAMES
from .scene import Scene


def place_of(scene: Scene, rank: int, op: Operation) -> int:
    """Its place in all that the rank has recorded; -1 where it is none of its operations."""
    ops = scene.ops[rank]
    records = zip(ops.operations, ops.places, strict=False)
    return next((place for record, (place, _) in records if record is op), -1)


def first_place(scene: Scene, rank: int) -> int:
    """The place of the first operation that the rank has pending; -1 without one."""
    return min((at for at, _ in scene.ops[rank].places), default=-1)


def is_past(scene: Scene, rank: int, place: int) -> bool:
    """Whether all that the rank has pending comes after that place."""
    return all(at > place for at, _ in scene.ops[rank].places)


def common_place(scene: Scene, one: int, other: int) -> int:
    """Where both have one collective pending at the same place; -1 where they have none."""
    theirs = {
        (scene.groups.role(op.group), op.seq): place for op, place in _collectives(scene, other)
    }
    for op, place in _collectives(scene, one):
        if theirs.get((scene.groups.role(op.group), op.seq), -1) == place:
            return place
    return -1


def _collectives(scene: Scene, rank: int) -> Iterator[tuple[Operation, int]]:
    ops = scene.ops[rank]
    for op, (place, _) in zip(ops.operations, ops.places, strict=False):
        if op.op not in P2P_NAMES and not scene.overtaken(op):
            yield op, place
