"""The wait-for graph: rank -> operation instance -> members that are not at it.

Bipartite, so that its size is the sum of the sizes of the groups that someone waits in, not of
their squares.
"""

from __future__ import annotations

from ...model.diagnosis import Wait, WaitOn
from ...model.operations import Operation
from .frontier import Frontier
from .key_setters import STORE_WAIT, setter
from .keys import Key, key_of
from .scene import Scene


class Instance:
    """One operation of one group, in which at least one rank waits."""

    __slots__ = ("absent", "key", "present", "sample", "unknown", "waiters")

    def __init__(self, key: Key, sample: Operation) -> None:
        self.key = key
        self.sample = sample  # the record of its first waiter
        self.waiters: list[int] = []  # blocked by it
        self.present: set[int] = set()  # arrived, also those that go on meanwhile
        self.absent: list[int] = []  # not arrived, or unable to take part
        self.unknown: list[int] = []  # nothing shows where they are

    @property
    def targets(self) -> list[int]:
        """Which ranks its waiters wait for: a rank without any information only where no other is
        missing.
        """
        return self.absent or self.unknown


class WaitGraph:
    """Instances, and of each rank those that it waits in."""

    def __init__(self, instances: list[Instance], waits_in: dict[int, list[int]]) -> None:
        self.instances = instances
        self.waits_in = waits_in  # rank -> indices of instances


def build_waits(scene: Scene) -> WaitGraph:
    """The graph of a scene."""
    index: dict[Key, int] = {}
    instances: list[Instance] = []
    waits_in: dict[int, list[int]] = {}
    for rank, frontier in scene.frontiers.items():
        free = rank in scene.held or rank in scene.moving
        for op in frontier.active:
            key = key_of(op, rank)
            at = index.get(key)
            if at is None:
                at = index[key] = len(instances)
                instances.append(Instance(key, op))
            instances[at].present.add(rank)
            if not free and _blocks(frontier, op):
                instances[at].waiters.append(rank)
                waits_in.setdefault(rank, []).append(at)
    for instance in instances:
        if instance.waiters:
            _find_missing(scene, instance)
    return WaitGraph(instances, waits_in)


def _blocks(frontier: Frontier, op: Operation) -> bool:
    return frontier.blocking is frontier.active or op in frontier.blocking


def _find_missing(scene: Scene, instance: Instance) -> None:
    key, present, held = instance.key, instance.present, scene.held
    if key.store_op == STORE_WAIT:
        instance.absent = _setter_of_all(scene, instance)
        if instance.absent:
            return
    leaving = key.store_op == "destroy_process_group"
    raised: list[int] = []
    for rank in scene.members(key, instance.waiters[0]):
        if rank in present:
            if rank in held:
                instance.absent.append(rank)
        elif leaving and _has_left(scene, rank):
            continue
        elif rank not in scene.ops or not scene.known(rank):
            (instance.absent if rank in held else instance.unknown).append(rank)
        elif not scene.passed(rank, key):
            instance.absent.append(rank)
        elif failed_in(scene, rank, key):
            raised.append(rank)
    if not instance.absent and not instance.unknown:
        instance.absent = raised  # by an exception, while all others are in it


def failed_in(scene: Scene, rank: int, key: Key) -> bool:
    """Whether the rank's own record of an operation ends in an exception, which it outlived."""
    own = scene.find(rank, key)
    if own is None or not own.failed:
        return False
    return not scene.evidence.kept or scene.ops[rank].operations[-1] is not own


def _setter_of_all(scene: Scene, instance: Instance) -> list[int]:
    """The rank that is to set the key for which all waiters wait; [] where that does not show."""
    found = {
        setter(scene.ops[rank], op)
        for rank in instance.waiters
        if (op := scene.find(rank, instance.key))
    }
    return [rank for rank in found if rank is not None] if len(found) == 1 else []


def _has_left(scene: Scene, rank: int) -> bool:
    """Gone at the end, as it should: records of ranks that end well are removed."""
    if rank in scene.evidence.dead or scene.finished(rank):
        return True
    return rank not in scene.ops and rank not in scene.evidence.silent and rank not in scene.held


def list_waits(scene: Scene, graph: WaitGraph) -> list[Wait]:
    """Which ranks wait in what and for which, for the report."""
    found: list[Wait] = []
    for instance in graph.instances:
        if instance.waiters:
            group = scene.groups.name(instance.key.group)
            on = WaitOn(group, instance.sample.op, instance.sample.seq)
            found.append(Wait(sorted(instance.waiters), on, sorted(instance.targets)))
    return found
