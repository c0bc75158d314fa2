"""What the call of a rank should have been: by ranks with the same role, by other stages, by its
own earlier calls.
"""

from __future__ import annotations

from ...model.operations import STORE, Operation
from .history import Divergence
from .keys import P2P_NAMES
from .roles import kin, references, working_layout
from .scene import Scene
from .signatures import Signature, differing, signature
from .waits import Instance

_WAY = 64  # calls that may lie between two of one kind


def against_precedent(
    scene: Scene, instance: Instance, signatures: dict[int, Signature]
) -> list[int]:
    """Ranks whose signature most ranks with the same role, or they themselves before, did not use in that
    place.
    """
    records = {r: op for r in signatures if (op := scene.find(r, instance.key)) is not None}
    for voices in (_of_like, _of_other_stages, _of_last_iteration, _of_own_past):
        strange = []
        for rank, here in records.items():
            told, own = voices(scene, rank, here, set(signatures)), _relative(scene, here)
            if told and 2 * sum(bool(differing(own, v)) for v in told) > len(told):
                strange.append(rank)
        if strange and (len(strange) < len(records) or instance.unknown):
            return sorted(strange)
    return []


def one_ahead(scene: Scene, rank: int, instance: Instance) -> Divergence | None:
    """What the rank entered is what ranks with the same role enter one call later: it skipped one."""
    mine = scene.find(rank, instance.key)
    if mine is None:
        return None
    own = _relative(scene, mine)
    layout = working_layout(scene)
    for other in [r for r, _ in references(scene, layout, rank, {rank})] + kin(
        scene, layout, rank, {rank}
    ):
        here, following = (_corresponding(scene, rank, other, mine, later) for later in (0, 1))
        if here is None or following is None or not differing(own, _relative(scene, here)):
            continue
        if not differing(own, _relative(scene, following)):
            return Divergence(
                rank, other, "skipped", mine, here, len(scene.ops[rank].operations) - 1
            )
    return on_its_way(scene, rank, mine, instance)


def on_its_way(scene: Scene, rank: int, mine: Operation, instance: Instance) -> Divergence | None:
    """What the rank entered is what the members come to after the call that they wait in, each
    time: it left calls out.
    """
    other = next((r for r in sorted(instance.waiters) if r != rank), None)
    here = scene.find(other, instance.key) if other is not None else None
    if (
        other is None
        or here is None
        or not here.site
        or (here.op, here.site) == (mine.op, mine.site)
    ):
        return None
    calls = [o for o in scene.ops[other].operations if o.op not in STORE and o.state == "done"]
    followed = 0
    places = [i for i, o in enumerate(calls) if (o.op, o.site) == (here.op, here.site)]
    for i, until in zip(places, [*places, len(calls)][1:], strict=True):
        followed += any((o.op, o.site) == (mine.op, mine.site) for o in calls[i + 1 : until][:_WAY])
    if followed < 2:
        return None
    return Divergence(rank, other, "skipped", mine, here, len(scene.ops[rank].operations) - 1)


def _of_like(scene: Scene, rank: int, here: Operation, members: set[int]) -> list[Signature]:
    others = [
        r for r, _ in references(scene, working_layout(scene), rank, members) if r not in members
    ]
    return [v for r in others if (v := _expected(scene, rank, r, here)) is not None]


def _of_other_stages(
    scene: Scene, rank: int, here: Operation, members: set[int]
) -> list[Signature]:
    """What ranks of other stages called there; of shapes only where both stages called earlier ones
    alike.
    """
    told: list[Signature] = []
    for other in kin(scene, working_layout(scene), rank, members):
        said = _expected(scene, rank, other, here) if other not in members else None
        if said is not None:
            told.append(said if _alike_before(scene, rank, other, here) else (*said[:4], ""))
    return told


def _alike_before(scene: Scene, rank: int, other: int, here: Operation) -> bool:
    """Whether both called the same line with the same shapes before."""
    role = scene.groups.role(here.group)

    def last(some: int) -> str | None:
        for op in reversed(scene.ops[some].operations):
            if op.site == here.site and op.seq < here.seq and scene.groups.role(op.group) == role:
                return op.shapes
        return None

    mine = last(rank)
    return mine is not None and mine == last(other)


def _of_last_iteration(
    scene: Scene, rank: int, here: Operation, members: set[int]
) -> list[Signature]:
    """The call of the same place in the iteration before."""
    mine = [
        o for o in scene.ops[rank].operations if o.group == here.group and o.op not in P2P_NAMES
    ]
    now = [o for o in mine if o.iteration == here.iteration and o.seq <= here.seq]
    before = [o for o in mine if o.iteration == here.iteration - 1]
    complete = not scene.ops[rank].overwritten or (mine and mine[0].iteration < here.iteration - 1)
    if (
        here.op in P2P_NAMES
        or here.iteration < 1
        or not complete
        or len(before) < len(now)
        or not now
    ):
        return []
    return [_relative(scene, before[len(now) - 1])]


def _of_own_past(scene: Scene, rank: int, here: Operation, members: set[int]) -> list[Signature]:
    """Earlier calls of the same line: of each field what it said last, where it never said what it
    says now.
    """
    past = [_relative(scene, o) for o in scene.ops[rank].operations
            if o.site == here.site and o.site and o.state == "done" and o.group == here.group]  # fmt: skip
    if len(past) < 2:
        return []
    now = _relative(scene, here)
    said = [mine if any(p[f] == mine for p in past) else past[-1][f] for f, mine in enumerate(now)]
    return [(said[0], said[1], said[2], said[3], said[4])]


def _expected(scene: Scene, rank: int, other: int, here: Operation) -> Signature | None:
    """The signature that `other` used for the operation that corresponds to `here`."""
    found = _corresponding(scene, rank, other, here, 0)
    return _relative(scene, found) if found is not None else None


def _corresponding(
    scene: Scene, rank: int, other: int, here: Operation, later: int
) -> Operation | None:
    """What `other` did on its group of the same role under the same number, or so many `later`."""
    role = scene.groups.role(here.group)
    for op in reversed(scene.ops[other].operations):
        if op.seq != here.seq + later or (op.op in P2P_NAMES) != (here.op in P2P_NAMES):
            continue
        if op.op in P2P_NAMES and (op.op != here.op or op.peer - other != here.peer - rank):
            continue
        if scene.groups.role(op.group) == role:
            return op
    return None


def _relative(scene: Scene, op: Operation) -> Signature:
    """A signature that compares between groups: the root as a position."""
    name, root, *rest = signature(op)
    if root:
        members = scene.groups.members(op.group, op.root)
        root = str(members.index(op.root)) if op.root in members else root
    return (name, root, rest[0], rest[1], rest[2])
