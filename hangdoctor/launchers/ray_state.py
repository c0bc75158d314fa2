"""What Ray knows of a training: its workers, their ranks, and the nodes to ask; no I/O."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from ..readers import ray_ranks
from ..text.ranges import MAX_RANKS, format_hosts, format_ranks

_ALIVE = "ALIVE"
_WORKER = "RayTrainWorker"
_CONSEQUENCE = re.compile(r"killed by `ray\.kill`|because its owner has died|^$")


class RayNode(Struct, omit_defaults=True):
    """One node, as Ray lists it."""

    id: str
    host: str = ""
    address: str = ""
    alive: bool = False
    why: str = ""  # why it is dead


class RayActor(Struct, omit_defaults=True, rename={"kind": "class"}):
    """One actor, as Ray lists it."""

    id: str
    kind: str = ""  # the name of its class
    name: str = ""
    job: str = ""
    node: str = ""  # id of its node
    address: str = ""
    pid: int = 0
    state: str = ""
    started: int = 0  # milliseconds since the epoch
    why: str = ""  # why it is dead


class RayState(Struct, omit_defaults=True):
    """The first answer of `ray_driver`."""

    version: str = ""
    nodes: list[RayNode] = []
    actors: list[RayActor] = []
    logs: dict[str, str] = {}  # actor id -> the end of the log of an actor that directs a training
    error: str = ""
    says: str = ""


class Worker(Struct, frozen=True):
    """One rank of a training."""

    rank: int
    pid: int
    actor: RayActor


class Training(Struct):
    """The nodes to ask, and the ranks that are on them as far as Ray Train says so."""

    names: dict[str, str]  # node id -> a name that no other node has
    asked: list[RayNode]
    lost: list[RayNode]  # dead ones that had a worker
    workers: list[Worker] = []
    world_size: int = 0

    def ranks(self, node: RayNode) -> dict[int, int]:
        """{process id: rank} of the workers on a node."""
        return {w.pid: w.rank for w in self.workers if w.actor.node == node.id}


def training(state: RayState) -> Training:
    """The newest run of Ray Train that has live workers; without one, all nodes that have actors,
    or all nodes.
    """
    names = node_names(state.nodes)
    workers, world = _newest_run(state)
    with_worker = {w.actor.node for w in workers}
    busy = with_worker or {a.node for a in state.actors if a.state == _ALIVE}
    alive = [node for node in state.nodes if node.alive]
    asked = [node for node in alive if node.id in busy] or alive
    lost = [node for node in state.nodes if not node.alive and node.id in with_worker]
    return Training(names, asked, lost, workers=workers, world_size=world)


def node_names(nodes: Sequence[RayNode]) -> dict[str, str]:
    """{node id: its host's name, where no other live node has it, else its address, else its id}."""
    hosts = Counter(node.host for node in nodes if node.alive)
    addresses = Counter(node.address for node in nodes if node.alive)
    names = {}
    for node in nodes:
        short = node.id[:12]
        if node.host and hosts[node.host] <= 1:
            names[node.id] = node.host
        elif node.address and addresses[node.address] <= 1:
            names[node.id] = node.address
        else:
            names[node.id] = f"{node.host or node.address}/{short}"
    return names


def _newest_run(state: RayState) -> tuple[list[Worker], int]:
    directors = [actor for actor in state.actors if actor.id in state.logs]
    for director in sorted(directors, key=lambda actor: -actor.started):
        listed, world = ray_ranks.workers(state.logs[director.id])
        found = _joined(listed, [a for a in state.actors if a.job == director.job])
        if any(worker.actor.state == _ALIVE for worker in found) and world < MAX_RANKS:
            return found, world
    return [], 0


def _joined(listed: Sequence[ray_ranks.Listed], actors: Sequence[RayActor]) -> list[Worker]:
    """The actor of each worker that a log lists: by its address and process id, the newest."""
    by_place: dict[tuple[str, int], RayActor] = {}
    for actor in sorted(actors, key=lambda actor: actor.started):
        if _WORKER in actor.kind:
            by_place[actor.address, actor.pid] = actor
    places = ((one, by_place.get((one.address, one.pid))) for one in listed)
    return [Worker(one.rank, one.pid, actor) for one, actor in places if actor is not None]


def placement(found: Training) -> list[str]:
    """One line a node: its ranks, and their actors."""
    lines = []
    for node in [*found.asked, *found.lost]:
        here = sorted((w for w in found.workers if w.actor.node == node.id), key=lambda w: w.rank)
        if here:
            ranks = format_ranks(w.rank for w in here)
            actors = ", ".join(w.actor.name or w.actor.id for w in here)
            job = here[0].actor.job
            lines.append(f"Ray job {job}, {found.names[node.id]}: ranks {ranks}, actors {actors}")
    return lines


def dead_workers(found: Training) -> list[tuple[Worker, str]]:
    """(worker, Ray's reason) of the dead ones on nodes that can be asked."""
    asked = {node.id for node in found.asked}
    dead = [w for w in found.workers if w.actor.state == "DEAD" and w.actor.node in asked]
    return [(worker, worker.actor.why or "Ray gives no reason") for worker in dead]


def ended(state: RayState) -> str:
    """How the newest training ended, in Ray's words; "" where it has live workers, or there was none.

    What Ray Train killed itself, because another worker had died, is a consequence.
    """
    workers = [actor for actor in state.actors if _WORKER in actor.kind]
    newest = max(workers, key=lambda actor: actor.started, default=None)
    of_job = [actor for actor in workers if newest is not None and actor.job == newest.job]
    if newest is None or any(actor.state != "DEAD" for actor in of_job):
        return ""
    names = node_names(state.nodes)
    first = [actor for actor in of_job if not _CONSEQUENCE.search(actor.why)]
    where = format_hosts(names.get(actor.node, actor.node) for actor in first)
    why = f", first {len(first)} on {where}: {first[0].why}" if first else ""
    return f"all {len(of_job)} workers of Ray job {newest.job} are dead{why}"


def given(ranks: Mapping[int, int], world: int) -> str:
    """``4:311=0,337=1``, for `ray_ranks.GIVEN`."""
    return f"{world}:" + ",".join(f"{pid}={rank}" for pid, rank in sorted(ranks.items()))
