"""Where a rank without any information must be, from what its peers did with it.

What a known peer completed with it, it has passed; what a known peer waits in for it, it has not
reached. A rank of the same role shows which calls lie between. At the first of those for which
another rank is missing too, it may wait; if there is none, it waits for no rank.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from ...model.operations import STORE, Operation
from .counted_transfers import corresponding_peer, counted_by_peer
from .group_members import Role
from .keys import P2P_NAMES, Key, key_of
from .position_beside import behind, in_step, waits_before
from .roles import references
from .scene import Scene
from .waits import Instance, WaitGraph

_MEETINGS = 64  # operations that silent ranks get past together
_FAR = 4096  # calls between what a silent rank has passed and has not reached; beyond, no guess


Lanes = dict[tuple[int, str], int]  # (peer, operation): how much higher the peer counts them


class Held(Struct):
    """Ranks that a silent one may wait for, none where it waits for no rank; `key`: in what;
    `come_to`: what it has come to, that operation included.
    """

    ranks: set[int]
    key: Key | None = None
    come_to: frozenset[Key] = frozenset()
    end: Key | None = None  # the first operation that it has provably not reached
    beyond: frozenset[Key] = frozenset()  # what follows that in its program


def where_held(
    scene: Scene, silent: Iterable[int], missed: dict[int, list[Instance]], graph: WaitGraph
) -> dict[int, Held]:
    """The likely waits of silent ranks; without those that cannot be known.

    Where the ranks that one waits for are at the same operation, or past it, all get past it.
    """
    present = {i.key: set(i.present) for i in graph.instances}
    found: dict[int, Held] = {}
    asked = list(silent)
    for _ in range(_MEETINGS):
        for rank in asked:
            held = likely_waits(scene, rank, missed.get(rank, []), present=present)
            if held is not None:
                found[rank] = held
        asked = [rank for rank, held in found.items() if _all_there(held, found)]
        if not asked:
            break
        for held in [found[rank] for rank in asked]:
            if held.key is not None:
                present.setdefault(held.key, set()).update(held.ranks)
    return {rank: _at_its_end(rank, held, found) for rank, held in found.items()}


def _at_its_end(rank: int, held: Held, found: dict[int, Held]) -> Held:
    """A rank that waits for no rank up to an operation may wait there, for one that is stuck in an
    earlier one.
    """
    if held.ranks or held.end is None:
        return held
    behind = {r for r, other in found.items() if r != rank and _stuck_before(other, held.end)}
    return Held(behind, held.end) if behind else held


def _stuck_before(held: Held, end: Key) -> bool:
    """Whether the rank has not come to the operation, and waits for another one on its way there."""
    return end in held.beyond or (held.end == end and bool(held.ranks))


def _all_there(held: Held, found: dict[int, Held]) -> bool:
    """Whether all ranks that it waits for are silent and have come to the operation."""
    there = (r in found and held.key in found[r].come_to for r in held.ranks)
    return held.key is not None and bool(held.ranks) and all(there)


def likely_waits(
    scene: Scene,
    rank: int,
    missed: list[Instance],
    present: dict[Key, set[int]],
) -> Held | None:
    """Where a silent rank may wait; None where that cannot be known."""
    if not missed:
        return None
    ahead = {i.key for i in missed}
    for other in references(scene, rank, set()):
        if scene.ops[other].only_active:
            waits = _as_neighbours(scene, rank, present)
            return Held(waits) if waits is not None else None
        keys = _program_of(scene, rank, other)
        ends = [n for n, key in enumerate(keys) if key in ahead]
        if ends:
            end = min(ends)
            beside = _beside(scene, rank, other)
            way = [key for key in keys[:end][-_FAR:] if key not in beside]
            held = _first_held(scene, rank, way, present)
            held.end, held.beyond = keys[end], frozenset(keys[end + 1 :])
            return held
    return None


def _as_neighbours(scene: Scene, rank: int, present: dict[Key, set[int]]) -> set[int] | None:
    """Ranks that a silent one waits for if it is where those are that make its calls in step with it;
    None where that cannot be known.
    """
    own = _own_groups(scene, rank)
    others = in_step(scene, rank)
    slower = behind(scene, rank, others)
    if slower:
        return slower
    for other in others:
        for op in scene.frontier(other).active:
            if rank in scene.groups.members(op.group, other) and op.op not in P2P_NAMES:
                return waits_before(scene, rank, other, op)
            group = own.get((scene.groups.role(op.group), ""))
            if group is None or op.op in STORE:
                continue
            moved = _moved(scene, rank, other, op, group=group, lanes={})
            if moved is None:
                continue
            waits = _first_held(scene, rank, [key_of(moved, rank)], present).ranks
            if waits:
                return waits
    return None


def _program_of(scene: Scene, rank: int, other: int) -> list[Key]:
    """What `other` did, as if `rank` had done it in its own groups."""
    return _keys_of(scene, rank, other, scene.ops[other].operations)


def _keys_of(scene: Scene, rank: int, other: int, calls: Iterable[Operation]) -> list[Key]:
    own = _own_groups(scene, rank)
    keys: list[Key] = []
    lanes: Lanes = {}
    for op in calls:
        role = scene.groups.role(op.group)
        shared = rank in scene.groups.members(op.group, other)
        same = own.get((role, op.group)) if shared else None
        group = same or own.get((role, ""))
        if group is not None and op.op not in STORE:
            moved = _moved(scene, rank, other, op, group=group, lanes=lanes)
            if moved is not None:
                keys.append(key_of(moved, rank))
    return keys


def _beside(scene: Scene, rank: int, other: int) -> set[Key]:
    """Of that program what runs beside it: a rank goes on without its end."""
    calls = [op for op in scene.ops[other].operations if scene.overtaken(op)]
    return set(_keys_of(scene, rank, other, calls))


def _own_groups(scene: Scene, rank: int) -> dict[tuple[Role, str], str]:
    """The rank's groups by role and uid, and by role alone."""
    found: dict[tuple[Role, str], str] = {}
    for uid in scene.groups.of_rank(rank):
        role = scene.groups.role(uid)
        found[(role, uid)] = uid
        found[(role, "")] = uid
    return found


def _moved(
    scene: Scene, rank: int, other: int, op: Operation, group: str, lanes: Lanes
) -> Operation | None:
    """The call of `other` as `rank` makes it; None where no rank is to it what the peer is."""
    if op.op not in P2P_NAMES:
        return Operation(group, op.seq, op.op)
    peer = corresponding_peer(scene, other, rank, op.group, peer=op.peer)
    if peer is None:
        return None
    if scene.ops[other].source != "flight_recorder":
        return Operation(group, op.seq, op.op, peer=peer)
    lane = (peer, op.op)
    if lane not in lanes:
        lanes[lane] = counted_by_peer(scene, rank, peer, other, op=op) or 0
    return Operation(group, op.seq + lanes[lane], op.op, peer=peer)


def _first_held(scene: Scene, rank: int, keys: list[Key], present: dict[Key, set[int]]) -> Held:
    """Who else is missing at the first call that the rank has not provably passed."""
    begin = 0
    for n in range(len(keys) - 1, -1, -1):
        if _proven(scene, rank, keys[n]):
            begin = n + 1
            break
    for n, key in enumerate(keys[begin:], begin + 1):
        here = present.get(key, set()) | {rank}
        missing = {r for r in scene.members(key, rank) if r not in here}
        missing = {r for r in missing if not _reached(scene, r, key)}
        if missing:
            known = {r for r in missing if scene.known(r)}
            return Held(known or missing, key, frozenset(keys[:n]))
    return Held(set(), come_to=frozenset(keys[:begin]))


def _proven(scene: Scene, rank: int, key: Key) -> bool:
    """Whether a peer has completed the operation, so that the rank has been at it."""
    peers = [r for r in scene.members(key, rank) if r != rank and scene.known(r)]
    return any(scene.completed(r).get(key.counter, -1) >= key.number for r in peers)


def _reached(scene: Scene, rank: int, key: Key) -> bool:
    return rank in scene.ops and scene.passed(rank, key)
