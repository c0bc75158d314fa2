"""The first operation that its members called differently, whether or not it came to its end.

Libraries do not compare what ranks call: sums beside maxima come to an end, with a wrong result, and
sizes that differ abort whichever rank receives them. What fails then is not where it began.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import prod

from ...model.operations import Operation
from ..findings import Finding
from .evidence import OpsEvidence
from .keys import UNNUMBERED, Key, key_of
from .mismatch import disagreement_finding
from .scene import Scene
from .signatures import differing, signature
from .waits import Instance

_NEWEST = 512  # operations of each rank that are compared
_SAME_RESULT = (
    frozenset({"all_gather", "all_gather_single", "all_gather_into_tensor"}),
    frozenset({"reduce_scatter", "reduce_scatter_tensor"}),
)
Members = dict[int, Operation]


def first_disagreement(evidence: OpsEvidence, newest: int = _NEWEST) -> Finding | None:
    """Who entered it with another signature; None where all calls that are compared agree.

    newest: how many of each rank's last operations are compared.
    """
    scene = Scene(evidence, set())
    calls = _calls(scene, newest)
    apart = [key for key, members in calls.items() if _disagree(members)]
    for key in sorted(apart, key=lambda key: _since(calls[key])):
        finding = _finding(scene, key, calls[key])
        if finding is not None:
            return finding
    return None


def _calls(scene: Scene, newest: int) -> dict[Key, Members]:
    """The newest collectives, each with the record of every member that has one."""
    found: dict[Key, Members] = {}
    for rank in scene.ops:
        for op in _newest(scene, rank, newest):
            found.setdefault(key_of(op, rank), {})[rank] = op
    return found


def _newest(scene: Scene, rank: int, newest: int) -> Iterator[Operation]:
    every = reversed(scene.ops[rank].operations)
    compared = (op for op in every if op.op not in UNNUMBERED or op.op == "new_group")
    return islice(compared, newest)


def _disagree(members: Members) -> bool:
    first, *others = members.values()
    return any(is_apart(first, other) for other in others)


def is_apart(one: Operation, other: Operation) -> bool:
    """Whether the two say what cannot be one collective; sizes may be written in two ways."""
    fields = differing(signature(one), signature(other))
    if "op" in fields and any({one.op, other.op} <= same for same in _SAME_RESULT):
        fields.remove("op")
    if "shapes" in fields and _count(one.shapes) == _count(other.shapes):
        fields.remove("shapes")
    return bool(fields)


def _count(shapes: str) -> int:
    """Elements of a tensor, ``[4, 8]``; -1 of a list, or what is no shape."""
    inside = shapes.removeprefix("[").removesuffix("]")
    if len(inside) != len(shapes) - 2 or "[" in inside:
        return -1
    sizes = [size.strip() for size in inside.split(",") if size.strip()]
    return prod(map(int, sizes)) if all(size.isdecimal() for size in sizes) else -1


def _since(members: Members) -> float:
    return min(op.entered_s for op in members.values())


def _finding(scene: Scene, key: Key, members: Members) -> Finding | None:
    ranks = sorted(members)
    instance = Instance(key, members[ranks[0]])
    instance.waiters, instance.present = ranks, set(ranks)
    finding = disagreement_finding(scene, instance)
    if finding is not None and all(op.state == "done" for op in members.values()):
        finding.waiters = None
    return finding
