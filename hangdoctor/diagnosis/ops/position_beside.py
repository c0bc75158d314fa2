"""Where a rank without any information may wait, by those that make its calls in step with it.

Recorders that keep pending operations alone have no history: nothing shows what lies between what a
silent rank has passed and what it has not reached. The members of one tensor-parallel group call dozens
of collectives in each layer, and can be no further apart than one of them. Where one waits elsewhere,
the silent rank may wait in the same; where one waits for it, in what that one called before.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...model.operations import Operation
from .counted_transfers import corresponding_peer
from .history import History
from .keys import P2P_NAMES, Collectives, key_of
from .pending import count_before
from .pending_places import common_place, first_place, is_past, place_of
from .roles import references
from .scene import Scene


def in_step(scene: Scene, rank: int) -> list[int]:
    """The other members of its busiest group, short of the whole job, by the counts of one of the same
    role.
    """
    like = next(iter(references(scene, rank, set())), None)
    if like is None:
        return []
    counts = {scene.groups.role(uid): n for uid, n in scene.ops[like].completed.items()}
    busiest: Sequence[int] = []
    most = 0
    for uid in scene.groups.of_rank(rank):
        members, count = scene.groups.members(uid, rank), counts.get(scene.groups.role(uid), 0)
        if 1 < len(members) < scene.world_size and count > most:
            busiest, most = members, count
    return [r for r in busiest if r != rank]


def behind(scene: Scene, rank: int, others: list[int]) -> set[int]:
    """Those of silent ranks in step with it that have not come to a transfer which it has been at: the
    peer of such a one waits, and the rank's own peer, side by side with that, has got past it.
    """
    silent = [r for r in others if not scene.known(r)]
    return {slow for slow in silent if any(_lacks(scene, slow, rank, q) for q in scene.ops)}


def _lacks(scene: Scene, slow: int, rank: int, waiter: int) -> bool:
    for op in scene.frontier(waiter).active:
        if op.op in P2P_NAMES and op.peer == slow:
            like = corresponding_peer(scene, slow, rank, op.group, peer=waiter)
            if like in scene.ops and common_place(scene, waiter, like) >= 0:
                return is_past(scene, like, place_of(scene, waiter, op))
    return False


def waits_before(scene: Scene, rank: int, other: int, op: Operation) -> set[int]:
    """Ranks that a silent one may wait for on its way to `op`, in which `other` waits for it; none
    where it waits for no rank.
    """
    key = key_of(op, other)
    others = [r for r in scene.members(key, other) if scene.known(r)]
    absent = {r for r in others if r in scene.held or not scene.passed(r, key)}
    if absent:
        return absent  # it may be in that as well
    return _in_collectives(scene, rank, other, op) | _in_transfers(scene, rank, other)


def _in_collectives(scene: Scene, rank: int, other: int, op: Operation) -> set[int]:
    """Members of its groups that may not have come to what `other` called on its own before `op`."""
    pending = History(scene, other).pending
    found: set[int] = set()
    for uid in scene.groups.of_rank(rank):
        members = scene.groups.members(uid, rank)
        if other in members:
            continue  # what it called before has completed: it waits in the group's next one
        role = scene.groups.role(uid)
        number = -1
        if pending is not None and role in {*pending.completed, *pending.roles}:
            at = [o is op for o in scene.ops[other].operations].index(True)
            number = count_before(pending, at, role)
        later = (r for r in members if r != rank and not _came_to(scene, r, uid, number))
        found.update(r for r in later if not _is_beyond(scene, r, op))
    return found


def _is_beyond(scene: Scene, rank: int, op: Operation) -> bool:
    """Whether the rank has been at the operation of its own that corresponds, by who completed it."""
    role = scene.groups.role(op.group)
    own = [uid for uid in scene.groups.of_rank(rank) if scene.groups.role(uid) == role]
    return bool(own) and all(_came_to(scene, rank, uid, op.seq) for uid in own)


def _came_to(scene: Scene, rank: int, uid: str, number: int) -> bool:
    """Whether a member has come to a collective of the group, by its records or by others' that have
    completed it; no rank has to one whose number is not known (-1).
    """
    if number < 0:
        return False
    counter = Collectives(uid)
    if rank in scene.ops and scene.posted(rank).get(counter, -1) >= number:
        return True
    known = (r for r in scene.groups.members(uid, rank) if r in scene.ops)
    return any(scene.completed(r).get(counter, -1) >= number for r in known)


def _in_transfers(scene: Scene, rank: int, other: int) -> set[int]:
    """Ranks that it exchanges transfers with and that are not as far as those of `other`; one that
    waits for this rank is as far as it has to be.
    """
    found: set[int] = set()
    for op in scene.ops[other].operations:
        peer = None
        if op.op in P2P_NAMES:
            peer = corresponding_peer(scene, other, rank, op.group, peer=op.peer)
        if peer is None or _waits_for(scene, peer, rank):
            continue
        if not _side_by_side(scene, peer, op.peer):
            found.add(peer)
    return found


def _waits_for(scene: Scene, rank: int, other: int) -> bool:
    active = scene.frontier(rank).active
    return any(op.op in P2P_NAMES and op.peer == other for op in active)


def _side_by_side(scene: Scene, rank: int, like: int) -> bool:
    """Whether the rank has come as far as another of its role."""
    if rank not in scene.ops or like not in scene.ops or common_place(scene, rank, like) < 0:
        return False
    return first_place(scene, rank) >= first_place(scene, like)
