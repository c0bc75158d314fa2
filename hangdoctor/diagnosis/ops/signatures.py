"""What the members of an operation must agree on, and how a record spells it."""

from __future__ import annotations

from collections import Counter

from ...model.operations import Operation
from ..own_members import LOCAL
from .keys import P2P_NAMES

# Members of these give inputs of the same shape; of all others (scatter, all_to_all, object
# collectives) they need not.
_EVEN_SHAPES = P2P_NAMES | {
    "all_reduce",
    "broadcast",
    "reduce",
    "all_gather",
    "all_gather_single",
    "all_gather_into_tensor",
    "reduce_scatter",
    "reduce_scatter_tensor",
}
FIELDS = ("op", "root", "reduce_op", "dtype", "shapes", "members", "tag")
Signature = tuple[str, str, str, str, str, str, str]


def signature(op: Operation) -> Signature:
    """What members must agree on; "" where it is not recorded or may differ. A send and a receive
    are one operation.
    """
    name = "p2p" if op.op in P2P_NAMES else op.op
    root = "" if op.root < 0 else str(op.root)
    shapes = op.shapes if op.op in _EVEN_SHAPES else ""
    return (name, root, op.reduce_op, op.dtype, shapes, _asked(op), tag_of(op))


def _asked(op: Operation) -> str:
    """The members that a new group shall have; not where these alone make it."""
    asked = op.detail if op.op == "new_group" else ""
    return "" if asked.startswith(LOCAL) else asked


def tag_of(op: Operation) -> str:
    """``tag 7`` of a send or receive; "" where it is not recorded."""
    return op.detail if op.op in P2P_NAMES else ""


def differing(a: Signature, b: Signature) -> list[str]:
    """Fields in which both say something, and not the same."""
    return [f for f, x, y in zip(FIELDS, a, b, strict=True) if x and y and x != y]


def classes_of(signatures: dict[int, Signature]) -> list[list[int]]:
    """Ranks by signature, the largest class first; unrecorded fields agree with anything."""
    classes: list[tuple[Signature, list[int]]] = []
    counted = Counter(signatures.values())
    order = {s: i for i, (s, _) in enumerate(counted.most_common())}
    for rank, mine in sorted(signatures.items(), key=lambda item: order[item[1]]):
        for theirs, ranks in classes:
            if not differing(mine, theirs):
                ranks.append(rank)
                break
        else:
            classes.append((mine, [rank]))
    return sorted((sorted(ranks) for _, ranks in classes), key=len, reverse=True)


def spelled(op: Operation, fields: tuple[str, ...] = FIELDS) -> tuple[str, ...]:
    """The fields that are recorded, each with its name: ``shapes [8]``, ``root 2``."""
    root = str(op.root) if op.root >= 0 else ""
    values = (op.op, root, op.reduce_op, op.dtype, op.shapes, _asked(op), tag_of(op))
    return spelled_signature(values, fields)


def spelled_signature(values: Signature, fields: tuple[str, ...]) -> tuple[str, ...]:
    """The fields of a signature that say something, as `spelled` has them."""
    names = {field: field.replace("_", " ") + " " for field in FIELDS} | {"op": "", "tag": ""}
    named = zip(FIELDS, values, strict=True)
    return tuple(names[field] + value for field, value in named if field in fields and value)
