"""Ranks that wait for a key of the store which is never set."""

from __future__ import annotations

from ...model.operations import STORE, Operation
from .. import findings as f
from ..confidence import Ground, sure
from ..findings import Against, Clue, Finding, Why
from .facts import nodes_of, op_of, sample_of, waiters_of, where_of
from .key_setters import STORE_WAIT, setter
from .scene import Scene
from .waits import Instance

_ENOUGH = 2  # waiters for a key, to name the rank that is left


def unset_key_finding(scene: Scene, instance: Instance) -> Finding:
    """The one rank that does not wait for the key, else all that do."""
    return _setter_of_key(scene, instance) or _unset_key(scene, instance)


def _setter_of_key(scene: Scene, instance: Instance) -> Finding | None:
    """All ranks but one wait for keys, and that one is in no operation: no other can set them."""
    others = [r for r in range(scene.world_size) if r not in instance.present]
    if len(others) != 1 or len(instance.waiters) < _ENOUGH:
        return None
    [rank] = others
    free = rank in scene.ops and rank not in scene.held | scene.moving
    if not free or scene.finished(rank):
        return None
    finding = _unset_key(scene, instance)
    waiting = finding.ranks
    instead = next((op for op in scene.frontier(rank).open if op.op not in STORE), None)
    if instead is not None:
        _has_gone_past(scene, finding, rank, instead)
        return finding
    if scene.frontier(rank).open:
        return None
    finding.kind, finding.ranks = "not_entered", others
    finding.story = f.NeverReached(sample_of(scene, instance))
    finding.nodes = nodes_of(scene, others)
    finding.where = where_of(scene, instance, None, others)
    finding.against = [Against("in_communication", tuple(waiting), Why.KEY_IS_NO_COLLECTIVE)]
    return finding


def _has_gone_past(scene: Scene, finding: Finding, rank: int, instead: Operation) -> None:
    """All ranks but one wait for keys, and that one is in a later operation, which those lack."""
    assert isinstance(finding.story, f.UnsetKey)
    keys, waiting = finding.story.keys, tuple(finding.ranks)
    finding.story = f.UnsetKey(keys, waiting, op_of(scene, instead, rank))
    finding.kind, finding.ranks = "order", [rank]
    finding.nodes = nodes_of(scene, [rank])


def _unset_key(scene: Scene, instance: Instance) -> Finding:
    """Waits for a key of the store: which rank should have set it is not recorded."""
    ranks = sorted(instance.waiters)
    keys = instance.sample.detail or f.A_KEY
    past = any(r in scene.ops and scene.ops[r].has_communicated() for r in ranks)
    return Finding(
        kind="not_entered" if past else "start_stall",
        ranks=ranks,
        story=f.UnsetKey(keys),
        confidence=sure(Ground.UNSET_KEY),
        nodes=nodes_of(scene, ranks),
        where=where_of(scene, instance, None, ranks),
        waiters=waiters_of(scene, instance),
        clues=[
            Clue("ops", tuple(ranks), f.WaitsInKey(keys)),
            *_who_waits_for_their_keys(scene, ranks),
        ],
        against=[Against("in_communication", tuple(ranks), Why.KEY_IS_NO_COLLECTIVE)],
    )


def _who_waits_for_their_keys(scene: Scene, ranks: list[int]) -> list[Clue]:
    """Of keys that these ranks are to set, as far as the keys say so."""
    found = []
    for rank, frontier in sorted(scene.frontiers.items()):
        for op in frontier.active if rank not in ranks else ():
            if op.op == STORE_WAIT and setter(scene.ops[rank], op) in ranks:
                found.append(Clue("ops", (rank,), f.WaitsInKey(op.detail)))
    return found
