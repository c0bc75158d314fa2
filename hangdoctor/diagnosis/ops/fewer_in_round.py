"""A rank that left a collective out of its round, by records without sends and receives, which gloo's recorder has not.

It waits at the line of a send or receive at which another rank of its group waits, too; that one has come through more
collectives of the group before, by a number that is no whole round. So it is not merely a round behind.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...model.operations import STORE, Operation
from ..findings import Op
from .divergence import Divergence
from .keys import P2P_NAMES
from .scene import Scene

_ROUNDS = 2  # whole ones in the records, to know how long one is
_LIKES = 8  # other ranks that are asked


def left_out_of_round(scene: Scene) -> list[Divergence]:
    """The only rank that left a collective out; [] where it is not one alone."""
    places = scene.evidence.transfers
    found = [d for rank, op in places.items() if (d := _of_rank(scene, rank, op)) is not None]
    return found if len(found) == 1 else []


def _of_rank(scene: Scene, rank: int, place: Op) -> Divergence | None:
    likes = [r for r, op in scene.evidence.transfers.items() if r != rank and _is_at(op, place)]
    for other in likes[:_LIKES]:
        for uid in scene.groups.of_rank(rank):
            theirs = _collectives(scene, other, uid)
            due = _due(_collectives(scene, rank, uid), theirs)
            if due is not None and _is_waited_for(scene, due):
                return _divergence(scene, rank, other, place, due)
    return None


def _is_at(one: Op, other: Op) -> bool:
    return one.name == other.name and str(one.frame) == str(other.frame)


def _collectives(scene: Scene, rank: int, uid: str) -> list[Operation]:
    operations = scene.ops[rank].operations if rank in scene.ops else []
    return [o for o in operations if o.group == uid and o.op not in P2P_NAMES and o.op not in STORE]


def _due(mine: list[Operation], theirs: list[Operation]) -> Operation | None:
    """The first that the other one has come through and this one has not, where it is less than a round."""
    if not mine or not theirs or any(o.state != "done" for o in (mine[-1], theirs[-1])):
        return None
    missing = theirs[-1].seq - mine[-1].seq
    period = _period(theirs)
    if missing <= 0 or period < 2 or missing % period == 0:
        return None
    return next((o for o in theirs if o.seq == mine[-1].seq + 1), None)


def _period(operations: Sequence[Operation]) -> int:
    """After how many calls the same ones come again, by all that the last rounds show; 0 where they do not."""
    calls = [(o.op, o.shapes, o.dtype, o.root) for o in reversed(operations)]
    for period in range(1, len(calls) // _ROUNDS + 1):
        last = calls[: _ROUNDS * period]
        if last[period:] == last[:-period]:
            return period
    return 0


def _is_waited_for(scene: Scene, due: Operation) -> bool:
    """Whether a rank waits in that one."""
    waits = (o for ops in scene.ops.values() for o in ops.unfinished())
    return any((o.group, o.seq) == (due.group, due.seq) for o in waits)


def _divergence(scene: Scene, rank: int, other: int, place: Op, due: Operation) -> Divergence:
    """The transfer has no record, so its call is taken from the stack."""
    peer = -1 if place.peer is None else place.peer
    here = Operation(group="", seq=-1, op=place.name, peer=peer, site=str(place.frame))
    return Divergence(
        rank, other, "skipped", here, theirs=due, position=len(scene.ops[rank].operations)
    )
