"""A call that its line makes in another way on all other ranks: on another group, or with another peer.

Where no history is kept, the numbers show only that a rank has called one group too often, or that a
transfer has no other side. The line of the call shows more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import structs

from ...model.operations import STORE, Operation
from .counted_transfers import corresponding_peer
from .divergence import Divergence
from .group_members import Role
from .keys import P2P_NAMES, SENDS
from .scene import Scene

_AROUND = 256  # members of its groups that are asked
_ASKED = 1024  # ranks whose transfers are compared
_ENOUGH = 2  # calls of one line, to say what it usually does

Called = tuple[int, Operation]  # the rank that called it


def on_other_group(scene: Scene, rank: int) -> Divergence | None:
    """The pending collective of the rank that all others around it make on another kind of group;
    None where there is none, or a history is kept.
    """
    ops = scene.ops[rank]
    if not ops.only_active:
        return None
    calls = list(_calls_around(scene, rank))
    for position, op in enumerate(ops.operations):
        if not op.site or op.op in P2P_NAMES or op.op in STORE:
            continue
        role = scene.groups.role(op.group)
        alike = [call for call in calls if (call[1].op, call[1].site) == (op.op, op.site)]
        roles = {scene.groups.role(call[1].group) for call in alike if call[1] is not op}
        if len(roles) == 1 and role not in roles:
            reference, theirs = next(call for call in alike if call[1] is not op)
            return Divergence(rank, reference, "group", op, theirs=theirs, position=position)
    return None


def to_other_peers(scene: Scene, ranks: Iterable[int]) -> dict[int, Divergence]:
    """Of these ranks, those that wait in a transfer whose line sends or receives another way round the
    group on all other ranks, one that runs the same program among them.
    """
    suspects = list(ranks)
    calls = _transfers_by_line(scene, suspects)
    found: dict[int, Divergence] = {}
    for rank in suspects:
        for op in scene.frontier(rank).active:
            others = [call for call in calls.get((op.op, op.site), []) if call[1] is not op]
            usual = _usual(scene, rank, others)
            if usual is not None and _way(scene, rank, op) != _way(scene, *usual):
                found[rank] = _strayed(scene, rank, op, usual)
    return found


def _strayed(scene: Scene, rank: int, op: Operation, usual: Called) -> Divergence:
    """With the rank itself as reference: the call of that line as it should have made it."""
    other, call = usual
    peer = corresponding_peer(scene, other, rank, call.group, peer=call.peer)
    theirs = structs.replace(op, peer=-1 if peer is None else peer)
    position = list(scene.ops[rank].operations).index(op)
    return Divergence(rank, rank, "other", op, theirs=theirs, position=position)


def _transfers_by_line(scene: Scene, suspects: list[int]) -> dict[tuple[str, str], list[Called]]:
    """Sends and receives that have not completed, by operation and line, of some ranks and these."""
    every = list(scene.ops)
    some = dict.fromkeys([*suspects, *every[:: 1 + len(every) // _ASKED]])
    found: dict[tuple[str, str], list[Called]] = {}
    for rank in some:
        for op in scene.frontier(rank).open:
            if op.op in P2P_NAMES and op.site:
                found.setdefault((op.op, op.site), []).append((rank, op))
    return found


def _usual(scene: Scene, rank: int, calls: list[Called]) -> Called | None:
    """One of the calls, if all of them go the same way: one of the rank's own program, or any where the
    rank that lies that way waits for this one.
    """
    if len(calls) < _ENOUGH or len({_way(scene, *call) for call in calls}) > 1:
        return None
    program = scene.programs.of(rank)
    own = (call for call in calls if scene.programs.of(call[0]) == program)
    return next(own, None) or (calls[0] if _is_awaited(scene, rank, *calls[0]) else None)


def _is_awaited(scene: Scene, rank: int, other: int, op: Operation) -> bool:
    """Whether the rank that is to this one what the other's peer is to that waits for this one."""
    peer = corresponding_peer(scene, other, rank, op.group, peer=op.peer)
    active = scene.frontier(peer).active if peer is not None else []
    sides = (o for o in active if o.op in P2P_NAMES and o.peer == rank)
    return any((o.op in SENDS) != (op.op in SENDS) for o in sides)


def _way(scene: Scene, rank: int, op: Operation) -> tuple[Role, int]:
    """The kind of group, and how far on in it the peer is: after the last member comes the first."""
    role = scene.groups.role(op.group)
    return role, scene.groups.hop(op.group, rank, op.peer) % max(1, int(role[0]))


def _calls_around(scene: Scene, rank: int) -> Iterator[tuple[int, Operation]]:
    """Pending operations of those that it shares a group with, short of the whole job, and then its
    own.
    """
    around: dict[int, None] = {}
    for uid in scene.groups.of_rank(rank):
        members = scene.groups.members(uid, rank)
        if len(members) < scene.world_size:
            around.update(dict.fromkeys(members))
    others = [r for r in around if r != rank and r in scene.ops]
    for other in [*others[:_AROUND], rank]:
        for op in scene.ops[other].operations:
            yield other, op
