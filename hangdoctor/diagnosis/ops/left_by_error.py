"""Ranks that left an operation by an exception, which the program caught, while all others wait
in it: they had entered it, and it lacks them all the same.

A time-out is such an exception, too, so they are named only where no other member is missing. Of a
job that is over, a rank that made no further call may have ended by the exception, as by a
connection to a rank that had ended: that one did not catch it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..confidence import Ground, sure
from ..findings import Finding, NeverReached
from .facts import nodes_of, op_of, sample_of, waiters_of, where_of
from .order import Link, link_clue
from .scene import Scene
from .waits import Instance, WaitGraph, failed_in


def left(scene: Scene, graph: WaitGraph, ranks: Iterable[int]) -> Finding | None:
    """The finding on those of `ranks`, which wait for one another."""
    ring = set(ranks)
    for instance in graph.instances:
        absent = instance.absent
        of_ring = bool(absent and instance.waiters) and ring.issuperset(absent)
        if of_ring and all(failed_in(scene, rank, instance.key) for rank in absent):
            return _finding(scene, instance)
    return None


def _finding(scene: Scene, instance: Instance) -> Finding:
    culprits = sorted(instance.absent)
    active = scene.frontier(culprits[0]).active
    now = op_of(scene, active[0], culprits[0]) if active else None
    return Finding(
        kind="order",
        ranks=culprits,
        story=NeverReached(sample_of(scene, instance), instead=now, raised=True),
        confidence=sure(Ground.LEFT_BY_ERROR),
        nodes=nodes_of(scene, culprits),
        where=where_of(scene, instance, None, culprits),
        waiters=waiters_of(scene, instance),
        clues=[link_clue(scene, Link(instance.waiters[0], instance, culprits[0]))],
    )
