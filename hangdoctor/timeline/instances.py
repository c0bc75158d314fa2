"""Which records of which ranks are one operation: collectives by group and sequence number,
messages by both ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.operations import STORE, Operation
from .model import Member, OperationInstance, RankTrace

# Every member needs something from every other: none can leave before the last has entered.
ALL_TO_ALL = frozenset(
    {
        "all_reduce",
        "all_reduce_coalesced",
        "all_gather",
        "all_gather_into_tensor",
        "all_gather_coalesced",
        "all_gather_object",
        "reduce_scatter",
        "reduce_scatter_tensor",
        "all_to_all",
        "all_to_all_single",
        "barrier",
    }
)
FROM_ROOT = frozenset({"broadcast", "broadcast_object_list", "scatter", "scatter_object_list"})
TO_ROOT = frozenset({"reduce", "gather", "gather_object"})
# These wait for the device themselves, also where other operations only enqueue.
ON_HOST = frozenset(
    {
        "barrier",
        "all_gather_object",
        "gather_object",
        "broadcast_object_list",
        "scatter_object_list",
    }
)

Key = tuple[str, str, int, int, int]


def match(ranks: Sequence[RankTrace]) -> list[OperationInstance]:
    """All instances with records of at least two ranks.

    Failed operations and store waits belong to none.
    """
    table: dict[Key, list[Member]] = {}
    for i, trace in enumerate(ranks):
        for j, op in enumerate(trace.ops.operations):
            key = key_of(trace.rank, op)
            if key is not None:
                members = table.setdefault(key, [])
                if not members or members[-1][0] != i:
                    members.append((i, j))
    return [
        OperationInstance(key[0], _name(ranks, members), key[2], members)
        for key, members in table.items()
        if len(members) > 1
    ]


def key_of(rank: int, op: Operation) -> Key | None:
    """What all records of one operation have in common; None for one that belongs to no instance."""
    if op.seq <= 0 or op.failed or op.op == "store_wait" or not op.group:
        return None
    if op.op in ("send", "recv"):
        if op.peer < 0 or op.peer == rank:
            return None
        ends = (rank, op.peer) if op.op == "send" else (op.peer, rank)
        return (op.group, "message", op.seq, *ends)
    return (op.group, op.op if op.op in STORE else "", op.seq, -1, -1)


def _name(ranks: Sequence[RankTrace], members: list[Member]) -> str:
    names = {ranks[i].ops.operations[j].op for i, j in members}
    return "message" if names & {"send", "recv"} else min(names)


def orders(
    instance: OperationInstance, ranks: Sequence[RankTrace]
) -> tuple[list[Member], list[Member]]:
    """(whose entering, comes before whose leaving): every first member has entered before any
    second one left.

    Both empty where the records cannot tell: handles that no one waited for, backends that enqueue
    and return.
    """
    known = [(m, ranks[m[0]].ops.operations[m[1]]) for m in instance.members]
    if _runs_ahead(instance, ranks) or any(o.asynchronous or _empty(o.shapes) for _, o in known):
        return [], []
    everyone = list(instance.members)
    if instance.op == "message":
        return [m for m, o in known if o.op == "send"], [m for m, o in known if o.op == "recv"]
    if len({o.op for _, o in known}) > 1:
        return [], []  # members disagree: this is not an operation that took place
    if instance.op in ALL_TO_ALL:
        return everyone, everyone
    root = [m for m, o in known if ranks[m[0]].rank == o.root]
    if instance.op in FROM_ROOT:
        return root, everyone
    if instance.op in TO_ROOT:
        return everyone, root
    return [], []


def _runs_ahead(instance: OperationInstance, ranks: Sequence[RankTrace]) -> bool:
    """Whether a member's backend may return before the operation has begun."""
    if instance.op in ON_HOST:
        return False
    return any(ranks[place].ops.runs_ahead for place, _ in instance.members)


def _empty(shapes: str) -> bool:
    """Nothing is sent for a tensor without elements, so no one waits for it."""
    return bool(shapes) and any(
        "0" in s.strip("[] ").replace(" ", "").split(",") for s in shapes.split("],")
    )
