"""A ring of two collectives, of one of which a single member is missing: it is in the other one,
for which several of the first are missing.

Histories may decide nothing, as where each round draws its own groups. Then it is likelier that the
one rank left its call out than that all others made one too many.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..confidence import Ground, sure
from ..findings import Finding, NeverReached
from .facts import nodes_of, sample_of, waiters_of, where_of
from .order import Link, link_clue
from .scene import Scene
from .waits import Instance

_FEWEST = 2  # others that have come to it


def only_one_missing(scene: Scene, cycle: Sequence[Link]) -> Finding | None:
    """The finding on that rank; None of other rings."""
    instances = {id(link.instance): link.instance for link in cycle}
    if len(instances) != 2 or any(i.key.transfer is not None for i in instances.values()):
        return None
    one, other = instances.values()
    for near, far in ((one, other), (other, one)):
        if _is_alone(near, far):
            return _finding(scene, cycle, near, far)
    return None


def _is_alone(near: Instance, far: Instance) -> bool:
    """Whether one rank alone is missing from `near` and waits in `far`, from which two or more are
    missing, all of them in `near`.
    """
    if len(near.absent) != 1 or near.unknown or far.unknown:
        return False
    missed = set(far.absent)
    return near.absent[0] in far.waiters and missed <= near.present and len(missed) >= _FEWEST


def _finding(scene: Scene, cycle: Sequence[Link], near: Instance, far: Instance) -> Finding:
    culprit = list(near.absent)
    return Finding(
        kind="not_entered",
        ranks=culprit,
        story=NeverReached(sample_of(scene, near), instead=sample_of(scene, far)),
        confidence=sure(Ground.ONE_MISSING),
        nodes=nodes_of(scene, culprit),
        where=where_of(scene, near, None, culprit),
        waiters=waiters_of(scene, near),
        clues=[link_clue(scene, link) for link in cycle],
    )
