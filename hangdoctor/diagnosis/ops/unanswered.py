"""Sends and receives that the other side never called, by pending operations alone.

A recorder that keeps pending operations alone has no history to compare. But where a rank with the
same role has got past its own transfer of that kind, and the peer waits beside its own like in the
same call without having called the counterpart, one of the two sides made another call than its
like. The rank that two such pairs have in common is the one that did.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from msgspec import Struct, structs

from ...model.operations import Operation
from .counted_transfers import corresponding_peer
from .divergence import Divergence, How
from .keys import P2P_NAMES, SENDS
from .pending_places import common_place, is_past, place_of
from .roles import in_step_first
from .scene import Scene


class Unanswered(Struct):
    """A transfer that `rank` waits in and `peer` has not called, while `like` got past its own."""

    rank: int
    peer: int
    op: Operation
    like: int


def transfers_apart(scene: Scene, ring: Collection[int]) -> dict[int, Divergence]:
    """The one rank of a ring of waits whose transfers differ from those of its like; {} where the
    pending operations do not show it.
    """
    found = list(_unanswered(scene, set(ring)))
    pairs = [{u.rank, u.peer} for u in found]
    taken = {rank: list(_taken_for_others(scene, rank)) for rank in ring}
    pairs += [{rank, op.peer} for rank, some in taken.items() for op in some]
    common = set(ring).intersection(*pairs) if found else set()
    if len(common) != 1 or len(set().union(*pairs) - common) < 2:
        return {}
    [culprit] = common
    awaited = next((u for u in found if u.peer == culprit), None)
    strayed = next(iter(taken[culprit]), None)
    divergence = _parted(scene, awaited, found, strayed) if awaited is not None else None
    return {} if divergence is None else {culprit: divergence}


def _parted(
    scene: Scene, awaited: Unanswered, found: list[Unanswered], strayed: Operation | None
) -> Divergence | None:
    """What the awaited rank called, or where it is, in the place of what its like called; `strayed`:
    a transfer of its own for which the peer took an earlier one.
    """
    rank, op = awaited.peer, awaited.op
    own = next((u for u in found if u.rank == rank), None)
    like = own.like if own is not None else None
    if own is None:
        like = corresponding_peer(scene, awaited.rank, awaited.like, op.group, peer=rank)
    if like is None:
        return None
    peer = corresponding_peer(scene, rank, like, op.group, peer=awaited.rank)
    mine = own.op if own is not None else next(iter(scene.frontier(rank).active), None)
    if peer is None or mine is None:
        return None
    name = "recv" if op.op in SENDS else "send"
    group = _group_of(scene, like, op)
    theirs = structs.replace(op, op=name, group=group, peer=peer, site="")
    how: How = "other" if own is not None else "skipped"
    if own is None and strayed is not None and strayed.op == name:
        how, mine = "other", structs.replace(strayed, site="")
    return Divergence(rank, like, how, mine, theirs=theirs, position=0)


def _taken_for_others(scene: Scene, rank: int) -> Iterator[Operation]:
    """Transfers that the rank has not come to and whose peers have got past them, where its like
    and theirs still wait in that: they took another one of the rank's for it.
    """
    for op, place in _first_transfers(scene, rank):
        peer = op.peer
        if peer not in scene.ops:
            continue
        for like in in_step_first(scene, rank):
            if common_place(scene, rank, like) < 0:
                continue
            theirs = corresponding_peer(scene, rank, like, op.group, peer=peer)
            if theirs is None or theirs == peer or theirs not in scene.ops:
                continue
            if not _has_at(scene, like, place, op.op, peer=theirs):
                continue
            awaits = _counterpart(scene, theirs, like, op)
            if awaits >= 0 and common_place(scene, peer, theirs) >= 0:
                if _completed_at(scene, peer, awaits):
                    yield op
                break


def _first_transfers(scene: Scene, rank: int) -> Iterator[tuple[Operation, int]]:
    """Of each peer and direction the first pending transfer, with its place."""
    seen: set[tuple[int, str]] = set()
    ops = scene.ops[rank]
    for op, (place, _) in zip(ops.operations, ops.places, strict=False):
        if op.op in P2P_NAMES and (op.peer, op.op) not in seen:
            seen.add((op.peer, op.op))
            yield op, place


def _has_at(scene: Scene, rank: int, place: int, name: str, peer: int) -> bool:
    found = _first_transfers(scene, rank)
    return any((at, op.op, op.peer) == (place, name, peer) for op, at in found)


def _counterpart(scene: Scene, rank: int, peer: int, op: Operation) -> int:
    """Where the rank has the other side of a peer's transfer pending; -1 where it has none."""
    sends = op.op not in SENDS
    found = _first_transfers(scene, rank)
    mine = (at for own, at in found if own.peer == peer and (own.op in SENDS) == sends)
    return next(mine, -1)


def _completed_at(scene: Scene, rank: int, place: int) -> bool:
    places = [at for at, _ in scene.ops[rank].places]
    return place not in places and max(places, default=-1) > place


def _unanswered(scene: Scene, ring: set[int]) -> Iterator[Unanswered]:
    for rank, ops in scene.ops.items():
        if not ops.only_active:
            continue
        for op in scene.frontier(rank).active:
            if op.op in P2P_NAMES and {rank, op.peer} & ring and op.peer in scene.ops:
                like = _past_it(scene, rank, op)
                if like is not None:
                    yield Unanswered(rank, op.peer, op, like)


def _past_it(scene: Scene, rank: int, op: Operation) -> int | None:
    """A rank with the same role that has got past its own transfer, with a peer that waits in the
    same call as this one's peer, which has not called the counterpart before that.
    """
    place = place_of(scene, rank, op)
    if place < 0:
        return None
    for like in in_step_first(scene, rank):
        if common_place(scene, rank, like) < 0 or not is_past(scene, like, place):
            continue
        peer = corresponding_peer(scene, rank, like, op.group, peer=op.peer)
        if peer is None or peer == op.peer or peer not in scene.ops:
            continue
        common = common_place(scene, op.peer, peer)
        if common >= 0 and not _called_before(scene, op.peer, rank, op, place=common):
            return like
    return None


def _called_before(scene: Scene, rank: int, peer: int, op: Operation, place: int) -> bool:
    """Whether the rank has called the other side of a peer's transfer before some place."""
    sends = op.op not in SENDS
    ops = scene.ops[rank]
    return any(
        at < place and own.peer == peer and own.op in P2P_NAMES and (own.op in SENDS) == sends
        for own, (at, _) in zip(ops.operations, ops.places, strict=False)
    )


def _group_of(scene: Scene, like: int, op: Operation) -> str:
    """The group of a rank that has the role of the operation's group."""
    role = scene.groups.role(op.group)
    own = (uid for uid in scene.groups.of_rank(like) if scene.groups.role(uid) == role)
    return next(own, op.group)
