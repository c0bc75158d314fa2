"""An operation that most of its members have completed and that is still pending on a few."""

from __future__ import annotations

from .. import findings as f
from ..confidence import Ground, sure
from ..findings import Against, Clue, Finding, Why
from .facts import in_op, nodes_of, sample_of, waiters_of, where_of
from .scene import Scene
from .waits import Instance


def stuck_device_finding(scene: Scene, instance: Instance) -> Finding | None:
    """The ranks whose devices do not get through what their peers have got through; None where the
    hosts wait themselves, or most members are in it.

    All members have contributed to what one has completed, so that no rank keeps these waiting.
    """
    key = instance.key
    stuck = sorted(instance.present)
    if key.transfer is not None or key.store_op or not all(_ahead(scene, r) for r in stuck):
        return None
    members = scene.members(key, stuck[0])
    others = [r for r in members if r not in instance.present]
    ended = tuple(r for r in others if scene.completed(r).get(key.counter, -1) >= key.number)
    if not ended or len(ended) < len(others) or len(stuck) >= len(ended):
        return None
    clues = [Clue("ops", tuple(stuck), in_op(scene, instance))]
    return Finding(
        kind="device_wait",
        ranks=stuck,
        story=f.NeverStarted(sample_of(scene, instance), ended),
        confidence=sure(Ground.ENDED_AT_OTHERS),
        nodes=nodes_of(scene, stuck),
        where=where_of(scene, instance, None, stuck),
        waiters=waiters_of(scene, instance),
        clues=clues,
        against=[Against("not_entered", tuple(stuck), Why.ENQUEUED)],
    )


def _ahead(scene: Scene, rank: int) -> bool:
    return rank in scene.ops and scene.ops[rank].runs_ahead
