"""NCCL's events of the ranks of one node as operations: enqueued, started on the device, done.

A communicator's hash is the same in all of its members, and each counts its collectives from the
first. Who the members are is known of a communicator of the whole job, and of one that has all of
them on this node. Sends and receives of others are left out: their peers are numbers within the
communicator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from ..model.operations import Group, Operation, OpState, RankOps
from ..probe.nccl import format as fmt
from .nccl_launches import Launches, Seen
from .nccl_profiler import Communicator, NcclEvents, Record

_ROOTED = frozenset({"broadcast", "reduce", "scatter", "gather"})
_OTHER = "nccl_operation"  # one that this version has no name for


class _Members(Struct):
    """Global ranks of a communicator in its own order; empty where not all are known."""

    ranks: Sequence[int] = ()

    def rank_of(self, number: int) -> int:
        return self.ranks[number] if 0 <= number < len(self.ranks) else -1


def rank_operations(events: Mapping[int, NcclEvents], world_size: int) -> dict[int, RankOps]:
    """What NCCL says of the operations of each rank, where it reports kernels; of none where an
    operation that has not started may be one that NCCL reports no kernels of.
    """
    seeing = {rank: Launches(found) for rank, found in events.items()}
    seeing = {rank: launches for rank, launches in seeing.items() if launches.records}
    seen = Seen(seeing.values())
    if any(not seen.explains(p) for launches in seeing.values() for p in launches.pending()):
        return {}
    members = _members(events, world_size)
    return {
        rank: _of_rank(rank, launches, members, world_size) for rank, launches in seeing.items()
    }


def _members(events: Mapping[int, NcclEvents], world_size: int) -> dict[str, _Members]:
    sizes: dict[str, int] = {}
    places: dict[str, dict[int, int]] = {}
    for rank, found in events.items():
        for communicator in found.communicators.values():
            sizes[communicator.hash] = communicator.ranks
            places.setdefault(communicator.hash, {})[communicator.rank] = rank
    known: dict[str, _Members] = {}
    for hashed, size in sizes.items():
        there = places[hashed]
        if size and len(there) == size and -1 not in there:
            known[hashed] = _Members([there[number] for number in range(size)])
        elif size == world_size and all(number == rank for number, rank in there.items()):
            known[hashed] = _Members(range(world_size))
        else:
            known[hashed] = _Members()
    return known


def _of_rank(
    rank: int, launches: Launches, members: Mapping[str, _Members], world_size: int
) -> RankOps:
    communicators = launches.communicators
    operations = []
    for record in launches.records:
        communicator = communicators[record.comm, record.generation]
        state = launches.state(record)
        operation = _operation(record, communicator, members[communicator.hash], state)
        if operation is not None:
            operations.append(operation)
    groups = {c.hash: _group(c, members[c.hash]) for c in communicators.values()}
    torn = launches.events.torn
    return RankOps(
        rank=rank,
        world_size=world_size,
        source="nccl",
        groups=list(groups.values()),
        operations=operations,
        overwritten=launches.events.overwritten,
        runs_ahead=True,
        notes=[f"{torn} of NCCL's events were being written and are left out"] if torn else [],
    )


def _operation(
    record: Record, communicator: Communicator, members: _Members, state: OpState
) -> Operation | None:
    """None for a transfer whose peer or number is not known."""
    peer = members.rank_of(record.peer)
    if record.directed and (peer < 0 or not record.number):
        return None
    name = fmt.OPS[record.op] if record.op < len(fmt.OPS) else _OTHER
    rooted = name in _ROOTED
    return Operation(
        group=communicator.hash,
        seq=record.number,
        op=name,
        state=state,
        root=peer if rooted else -1,
        peer=peer if record.directed else -1,
        shapes=f"[{record.elements}]",
        dtype=fmt.TYPES[record.datatype] if record.datatype < len(fmt.TYPES) else "",
        entered_s=record.begun_ns / 1e9,
        left_s=(record.ended_ns or record.moved_ns) / 1e9 if state == "done" else 0.0,
    )


def _group(communicator: Communicator, members: _Members) -> Group:
    return Group(communicator.hash, list(members.ranks), communicator.name)
