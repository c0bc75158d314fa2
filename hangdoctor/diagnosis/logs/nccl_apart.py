"""Calls that NCCL printed of several ranks, at one number of one communicator: another kind, size or root."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ...model.log_facts import NcclCall
from ..confidence import Ground, sure
from ..findings import Finding, Op
from ..findings.log_stories import OtherCall
from .candidate import First
from .scene import Scene

NAMES = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "ReduceScatter": "reduce_scatter",
}
_TYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")
_ONE_NODE = 16  # ranks of a node whose numbers of GPUs are ranks


def called_apart(scene: Scene) -> First | None:
    """The ranks that differ from most at the first number where any do; None where they may be of several
    communicators.
    """
    calls = _by_rank(scene)
    if len(calls) < 2:
        return None
    numbers = sorted({seq for own in calls.values() for seq in own})
    for seq in numbers:
        here = {rank: own[seq] for rank, own in calls.items() if seq in own}
        if len({_signature(call) for call in here.values()}) > 1:
            return _differ(scene, here)
    return None


def _by_rank(scene: Scene) -> dict[int, dict[int, NcclCall]]:
    """The calls of each rank by number; {} where a rank has several communicators, or all ranks are more
    than one of them has.
    """
    facts = scene.of(NcclCall)
    sizes = {f.size for f in facts if f.size}
    found: dict[int, dict[int, NcclCall]] = {}
    comms: dict[int, set[str]] = {}
    again: set[tuple[int, int]] = set()  # numbers that stand for several calls: they place none
    for fact in facts:
        rank = rank_of(fact, facts)
        own = found.setdefault(rank, {})
        again |= {(rank, fact.seq)} if fact.seq in own else set()
        own[fact.seq] = fact
        comms.setdefault(rank, set()).update({fact.comm} - {""})
    several = any(len(own) > 1 for own in comms.values())
    if several or len(sizes) != 1 or -1 in found or len(found) > max(sizes):
        return {}
    for rank, seq in again:
        del found[rank][seq]
    return found


def rank_of(call: NcclCall, calls: Sequence[NcclCall]) -> int:
    """Its rank; on a single node the number of its GPU is it."""
    one_node = len({f.node for f in calls}) == 1
    few = max((f.size for f in calls), default=0) <= _ONE_NODE
    return call.rank if call.rank >= 0 or not (one_node and few) else call.local


def _signature(call: NcclCall) -> tuple[str, int, int]:
    return call.op, call.count, call.dtype


def _differ(scene: Scene, here: dict[int, NcclCall]) -> First:
    kinds = Counter(_signature(call) for call in here.values()).most_common()
    (usual, most), (_, second) = kinds[0], kinds[1]
    odd = sorted(rank for rank, call in here.items() if _signature(call) != usual)
    pair = most == second
    mine = here[odd[0]]
    theirs = next(call for call in here.values() if _signature(call) == usual)
    story = OtherCall(_op(mine), _op(theirs), _size(mine), _size(theirs), pair=pair)
    ground = Ground.LOG_MISMATCH_PAIR if pair else Ground.LOG_MISMATCH
    ranks = sorted(here) if pair else odd
    finding = Finding("mismatch", ranks, story, sure(ground), nodes=scene.nodes(ranks))
    finding.where.op, finding.where.seq = _op(theirs).name, theirs.seq
    return First(finding, [*(here[rank] for rank in ranks), theirs], True)


def _op(call: NcclCall) -> Op:
    return Op(NAMES.get(call.op, call.op), call.seq)


def _size(call: NcclCall) -> str:
    known = 0 <= call.dtype < len(_TYPES)
    kind = _TYPES[call.dtype] if known else f"NCCL's type {call.dtype}"
    return f"with {call.count} elements of {kind}"
