"""The end of a job: ranks that leave while others stay."""

from __future__ import annotations

from .. import findings as f
from ..confidence import Ground, sure
from ..findings import Clue, Finding
from .blame import blame
from .facts import in_op, nodes_of, place, sample_of, waiters_of, where_of
from .lone_culprit import Sink
from .order import divergence_finding
from .scene import Scene
from .waits import Instance

_COMPARED = 64  # ranks of each side


def teardown_finding(scene: Scene, instance: Instance) -> Finding:
    """Ranks that are in destroy_process_group when no rank is missing there any more."""
    ranks = sorted(instance.waiters)
    finding = Finding(
        kind="end_stall",
        ranks=ranks,
        story=f.StillIn(sample_of(scene, instance)),
        confidence=sure(Ground.LAST_IN_TEARDOWN),
        nodes=nodes_of(scene, ranks),
        where=where_of(scene, instance, None, ranks),
        clues=[Clue("ops", tuple(ranks), in_op(scene, instance))],
    )
    return place(scene, finding)


def leaving_finding(scene: Scene, left: list[Sink]) -> Finding:
    """Ranks that ended cleanly while others wait for them: which of the two made the wrong calls?"""
    gone = sorted(s.rank for s in left)
    instance = min((i for s in left for i in s.instances), key=lambda i: len(i.present))
    found = blame(scene, sorted({*gone[:_COMPARED], *instance.waiters[:_COMPARED]}))
    if found:
        return divergence_finding(scene, found, [])
    ended = [r for r in scene.ops if scene.finished(r)]
    waiting = [r for r in scene.ops if scene.frontier(r).blocking]
    if len(ended) <= len(waiting):
        finding = _left_early(scene, gone, instance)
    else:
        finding = _still_waiting(scene, sorted(waiting), tuple(gone), instance)
    finding.clues = [
        Clue("ops", tuple(gone), f.EndedCleanly()),
        Clue("ops", tuple(instance.waiters[:_COMPARED]), in_op(scene, instance)),
    ]
    return finding


def _left_early(scene: Scene, gone: list[int], instance: Instance) -> Finding:
    return Finding(
        kind="not_entered",
        ranks=gone,
        story=f.LeftWithout(sample_of(scene, instance)),
        confidence=sure(Ground.LEFT_CLEANLY),
        nodes=nodes_of(scene, gone),
        where=where_of(scene, instance, None, gone),
        waiters=waiters_of(scene, instance),
    )


def _still_waiting(
    scene: Scene, waiting: list[int], gone: tuple[int, ...], instance: Instance
) -> Finding:
    finding = Finding(
        kind="end_stall",
        ranks=waiting,
        story=f.StillIn(sample_of(scene, instance), ended=gone),
        confidence=sure(Ground.STILL_AT_END),
        nodes=nodes_of(scene, waiting),
        where=where_of(scene, instance, None, waiting),
    )
    return place(scene, finding)
