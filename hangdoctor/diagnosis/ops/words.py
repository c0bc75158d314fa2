"""Sentences and small parts of causes that several passes share."""

from __future__ import annotations

from ...model import Where
from ...operations import Operation
from ...ranges import format_ranks
from .keys import P2P_NAMES, is_p2p
from .scene import Scene
from .waits import Instance


def ranks_text(ranks: list[int]) -> str:
    """ "rank 3" or "ranks 2,5-7"."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {format_ranks(ranks)}"


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def verb(ranks: list[int], one: str, many: str) -> str:
    return one if len(ranks) == 1 else many


def op_text(scene: Scene, op: Operation, rank: int) -> str:
    """ "all_reduce #128 of the tensor-parallel group (2,3)", "recv #5 from rank 1"."""
    if op.op in P2P_NAMES:
        way = "to" if op.op in ("send", "isend") else "from"
        other = f"rank {op.peer}" if op.peer >= 0 else "any rank"
        return f"{op.op} #{op.seq} {way} {other}"
    if op.op in ("init_process_group", "store_wait"):
        return op.op
    return f"{op.op} #{op.seq} of {scene.groups.label(op.group)}"


def at_site(op: Operation) -> str:
    return f" at {op.site}" if op.site else ""


def instance_text(scene: Scene, instance: Instance) -> str:
    return op_text(scene, instance.sample, instance.waiters[0])


def waited_s(scene: Scene, instance: Instance) -> float:
    """The longest that one of its waiters has stood there, by that rank's own clock; 0 where nothing tells."""
    longest = 0.0
    for rank in instance.waiters[:64]:
        op = next((o for o in scene.frontiers[rank].active if o.seq == instance.key[-1] and o.group == instance.key[0]), None)
        now = scene.evidence.taken_s or scene.ops[rank].heartbeat_s
        if op is not None and op.entered_s > 0 and now > op.entered_s:
            longest = max(longest, now - op.entered_s)
    return longest


def waiting_text(scene: Scene, instance: Instance) -> str:
    """ "rank 2 has waited in it for 41 s"."""
    seconds = waited_s(scene, instance)
    who, have = ranks_text(instance.waiters), verb(instance.waiters, "has", "have")
    return (
        f"{who} {have} waited in it for {seconds:.0f} s"
        if seconds >= 1
        else f"{who} {verb(instance.waiters, 'waits', 'wait')} in it"
    )


def where_of(scene: Scene, instance: Instance | None, op: Operation | None, ranks: list[int]) -> Where:
    """Place of a cause: the operation that is held up, and the frame of the first culprit that has one."""
    sample = op or (instance.sample if instance else None)
    frame = next((scene.evidence.places[r] for r in ranks if r in scene.evidence.places), None)
    own = next((scene.ops[r] for r in ranks if r in scene.ops), None)
    where = Where(frame=frame)
    if own is not None:
        where.iteration = own.iteration if own.iteration >= 0 else None
        where.phase = own.phase or None
    if sample is not None:
        where.group = scene.groups.name(sample.group)
        if instance is not None and is_p2p(instance.key):
            where.group_ranks = sorted(r for r in instance.key[1:3] if isinstance(r, int))
        else:
            where.group_ranks = list(scene.groups.members(sample.group, ranks[0]))
        where.op, where.seq = sample.op, sample.seq
        if where.iteration is None and sample.iteration >= 0:
            where.iteration = sample.iteration
    return where


def nodes_of(scene: Scene, ranks: list[int]) -> list[str]:
    nodes = scene.evidence.nodes
    return sorted({nodes[r] for r in ranks if r in nodes})


def place_text(scene: Scene, ranks: list[int]) -> str:
    """ "; rank 3 is in load_batch (data.py:41), blocked in read", or nothing."""
    for rank in ranks:
        if rank in scene.evidence.places:
            doing = scene.evidence.doing.get(rank, "")
            return f"; rank {rank} is in {scene.evidence.places[rank]}{f', {doing}' if doing else ''}"
    return ""
