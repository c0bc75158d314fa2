"""Recorders that leave sends and receives out: gloo's.

There, a rank that waits for its neighbour stage looks as if it were outside of every operation. The
ranks of one tensor-parallel group go through the pipeline side by side: where none of them misses
another, the whole group waits for the same neighbour. Such ranks are no culprits while anything
else explains the wait.
"""

from __future__ import annotations

from ..confidence import Ground, Limit, limited, sure
from ..findings import Against, Finding, OneOf, Why
from .blame import blame
from .divergence import Divergence
from .facts import nodes_of
from .lone_culprit import Sink
from .order import was_not_due
from .roles import working_layout
from .scene import Scene
from .waits import Instance

_SHOWN = 8  # pieces of evidence


def transfers_unseen(scene: Scene) -> bool:
    """Whether all that is known are dumps of gloo's recorder: stacks would show a transfer."""
    if scene.evidence.outside or scene.evidence.unrecorded is not None:
        return False
    return all(o.source == "flight_recorder" and not o.runs_ahead for o in scene.ops.values())


def peers_by_stacks(scene: Scene) -> dict[int, set[int]]:
    """Of ranks in a send or receive that their stacks show and no record: the rank they wait for."""
    seen = scene.evidence.unrecorded or {}
    return {rank: {peer} for rank, peer in seen.items() if 0 <= peer < scene.world_size}


def waits_unseen(scene: Scene, rank: int) -> bool:
    """Whether a rank waits in what no record shows, and nothing shows for which rank."""
    return (scene.evidence.unrecorded or {}).get(rank, 0) < 0


def parted_in_ring(scene: Scene, ranks: list[int]) -> list[Divergence]:
    """Of ranks that wait for one another, in sends and receives too, the one whose recorded calls part
    from those of ranks with the same role; [] where that is not one alone.
    """
    found = [d for d in blame(scene, ranks).values() if not was_not_due(scene, d)]
    return found if len(found) == 1 else []


def one_of_them(scene: Scene, found: list[Finding]) -> list[Finding]:
    """Ranks outside of all recorded operations: one may wait for another in a transfer that was not
    recorded, also for a neighbour stage that went on without it.
    """
    idle = [c for c in found if c.kind == "not_entered"]
    if not idle or not transfers_unseen(scene):
        return found
    rest = [c for c in found if c.kind != "not_entered"]
    parts = _by_replica(scene, idle)
    sets = [(some, _with_neighbours(scene, {r for c in some for r in c.ranks})) for some in parts]
    if any(len(ranks) > 1 for _, ranks in sets):
        return [_joined(scene, some, ranks) for some, ranks in sets] + rest
    only = idle[0]
    only.confidence = limited(only.confidence, Limit.UNRECORDED_TRANSFER)
    only.against.append(Against("p2p_unmatched", tuple(only.ranks), Why.UNRECORDED_TRANSFER))
    return found


def _by_replica(scene: Scene, idle: list[Finding]) -> list[list[Finding]]:
    """Findings on ranks that no transfer connects, apart: replicas meet in recorded operations
    alone.
    """
    layout = working_layout(scene)
    if layout is None or layout.pp < 2 or _unseen(scene):
        return [idle]
    found: dict[tuple[int, ...], list[Finding]] = {}
    for finding in idle:
        replicas = {layout.coordinates(rank)["dp"] for rank in finding.ranks}
        found.setdefault(tuple(sorted(replicas)), []).append(finding)
    return list(found.values())


def _with_neighbours(scene: Scene, ranks: set[int]) -> set[int]:
    """These ranks, and those that they send to or receive from."""
    layout = working_layout(scene)
    if layout is None or layout.pp < 2:
        return ranks
    around: set[int] = set()
    for rank in ranks:
        stages = layout.group("pp", rank)
        place = stages.index(rank)
        around.update({stages[place - 1], stages[(place + 1) % len(stages)]})
    return ranks | around


def _unseen(scene: Scene) -> tuple[int, ...]:
    return tuple(rank for rank in range(scene.world_size) if not scene.known(rank))


def _joined(scene: Scene, idle: list[Finding], outside: set[int]) -> Finding:
    unseen = _unseen(scene)
    ranks = sorted(outside.union(unseen))
    return Finding(
        kind="not_entered",
        ranks=ranks,
        story=OneOf(unseen),
        confidence=_confidence(idle),
        nodes=nodes_of(scene, ranks),
        where=idle[0].where,
        waiters=idle[0].waiters,
        clues=[e for c in idle for e in c.clues][:_SHOWN],
        against=[Against("p2p_unmatched", tuple(ranks), Why.TRANSFER_NOT_IN_DUMPS)],
    )


def without_transfers(scene: Scene, alone: list[Sink], others: bool) -> list[Sink]:
    """`alone` without the ranks that most likely wait in a transfer; `others`: something else
    explains the wait already.
    """
    if not alone or not transfers_unseen(scene):
        return alone
    layout = working_layout(scene)
    if layout is None or layout.pp < 2:
        return alone
    neighbours = {s.rank: set(layout.group("tp", s.rank)) for s in alone}
    missed = {s.rank for s in alone if _missed_by_neighbour(s, neighbours[s.rank])}
    if not missed:
        return [] if others else alone
    together = {rank for rank, some in neighbours.items() if some <= neighbours.keys()}
    return [s for s in alone if s.rank in missed or s.rank not in together]


def _confidence(idle: list[Finding]) -> float:
    """One rank and those beside it are more certain than several that are outside at once."""
    if len(idle) == 1 and len(idle[0].ranks) == 1:
        return limited(idle[0].confidence, Limit.UNRECORDED_TRANSFER)
    return sure(Ground.ONE_OF_THEM)


def explained_by_silence(
    scene: Scene, alone: list[Sink], silent: dict[int, list[Instance]]
) -> list[Sink]:
    """Those of `alone` that share a small group with a rank without a dump: it explains their wait,
    also in a transfer, and that it left none.
    """
    if not silent or not transfers_unseen(scene):
        return []
    around: set[int] = set()
    for rank in silent:
        for uid in scene.groups.of_rank(rank):
            members = scene.groups.members(uid, rank)
            if len(members) < scene.world_size:
                around.update(members)
    return [sink for sink in alone if sink.rank in around]


def parted_beside(scene: Scene, alone: list[Sink]) -> dict[int, Divergence]:
    """Ranks around those outside of all records that have made other calls than their like.

    Their neighbour stages wait for them in a transfer, which no record shows: such a rank is where
    the waits end.
    """
    if not alone or not transfers_unseen(scene):
        return {}
    around: set[int] = set()
    for sink in alone:
        near = _with_neighbours(scene, {sink.rank})
        groups = {uid for rank in near for uid in scene.groups.of_rank(rank)}
        members = (scene.groups.members(uid, sink.rank) for uid in groups)
        around.update(near, *(some for some in members if len(some) < scene.world_size))
    found = blame(scene, sorted(around))
    return found if len(found) == 1 else {}


def unheard(scene: Scene, alone: list[Sink]) -> dict[int, list[Instance]]:
    """Ranks without a dump, with what waits around them: they explain more than a transfer that was
    not seen.

    Those that the operations of these sinks lack too, else all: chains of transfers lead anywhere.
    """
    around = list({id(i): i for s in alone for i in s.instances}.values())
    found: dict[int, list[Instance]] = {}
    for instance in around:
        for rank in instance.unknown:
            found.setdefault(rank, []).append(instance)
    if found or not around:
        return found
    return {rank: around for rank in range(scene.world_size) if not scene.known(rank)}


def _missed_by_neighbour(sink: Sink, neighbours: set[int]) -> bool:
    for instance in sink.instances:
        members = len(instance.present) + len(instance.absent)
        if members <= len(neighbours) and neighbours & set(instance.waiters):
            return True
    return False
