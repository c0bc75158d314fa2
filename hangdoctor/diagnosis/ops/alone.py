"""A rank that others wait for and that waits for nobody: a culprit, explained by its state."""

from __future__ import annotations

import math
from collections.abc import Collection
from statistics import median
from typing import cast, get_args

from msgspec import Struct

from ...model import Alternative, Cause, Evidence, Kind
from ...operations import STORE, RankOps
from .keys import SENDS, is_p2p
from .scene import Scene
from .waits import Instance
from .words import capital, instance_text, nodes_of, place_text, ranks_text, verb, waited_s, waiting_text, where_of

USUAL = " Such waits are usual in this job"  # with this the doubt begins, behind what is known
_KINDS = frozenset(get_args(Kind))
_AS_LONG = 0.8  # of the present wait
_LONGER = 1.3  # than usual: no doubt is left then, with a margin over 1 / _AS_LONG
_LOOKED_BACK = 10  # operations of each waiter
_ENOUGH = 6  # of them, to speak of what is usual
_SETTING_UP = frozenset({"init_process_group", "new_group", "store_wait"})

ADVICE = {
    "not_entered": "Look at the frame where it stands; the peers are healthy and only wait.",
    "stopped": "Continue it (kill -CONT PID) or detach the debugger; if nobody stopped it on purpose, ask who may.",
    "dead": "Look at the end of its log and at dmesg on its node; restart the job from the last checkpoint.",
    "unreachable": "Check its node (power, network, agent); drain the node and restart without it if it stays silent.",
    "io_wait": "Check the file system that it reads or writes; the process cannot be interrupted until that answers.",
    "data_wait": "Look at its data loader's workers: their stacks and states tell why no batch comes.",
    "checkpoint_wait": "Look at the storage of the checkpoint, and at what this rank writes that others do not.",
    "interpreter_lock": "Find who holds the interpreter lock: an endless native call, or a lock inherited over fork.",
    "busy": "Profile it: it computes without end.",
    "device_wait": "Look at its GPU: a kernel does not finish; check Xid errors, run with CUDA_LAUNCH_BLOCKING=1.",
    "start_stall": "Check that it was started, with the MASTER_ADDR, MASTER_PORT and WORLD_SIZE of the others.",
    "end_stall": "Look at what it does at its end that the others do not.",
}


class Sink(Struct):
    """A rank at the end of all waits, and the instances in which it is missed."""

    rank: int
    instances: list[Instance]


def kind_of(scene: Scene, sink: Sink) -> Kind:
    evidence, rank = scene.evidence, sink.rank
    if rank in evidence.dead:
        return "dead"
    if rank in evidence.stopped:
        return "stopped"
    ops = {i.sample.op for i in sink.instances}
    if ops and ops <= _SETTING_UP:
        return "start_stall"
    told = evidence.outside.get(rank, "")
    if told in _KINDS and told not in ("dead", "stopped", "unreachable", "slow", "in_communication"):
        return cast(Kind, told)
    if ops and ops <= {"destroy_process_group"}:
        return "end_stall"
    if scene.frontier(rank).open and not scene.frontier(rank).active:
        return "device_wait"
    return "not_entered"


def causes_of_sinks(scene: Scene, found: list[Sink]) -> list[Cause]:
    """One cause for all sinks of one kind that are missed in the same instances and stand in the same place."""
    together: dict[object, list[Sink]] = {}
    for sink in found:
        kind = kind_of(scene, sink)
        where = tuple(sorted(str(i.key) for i in sink.instances[:4]))
        alone = sink.rank if kind in ("dead", "stopped") else -1
        together.setdefault((kind, where, scene.evidence.places.get(sink.rank, ""), alone), []).append(sink)
    return [_cause(scene, sinks) for sinks in together.values()]


def _cause(scene: Scene, sinks: list[Sink]) -> Cause:
    ranks = sorted(s.rank for s in sinks)
    kind = kind_of(scene, sinks[0])
    instance = min(sinks[0].instances, key=_first_missed) if sinks[0].instances else None
    sure = 0.95 if instance is None or instance.key[0] not in scene.groups.inferred else 0.8
    if any(r in scene.ops and scene.ops[r].overwritten and not _seen(scene, r, instance) for r in ranks):
        sure -= 0.1
    cause = Cause(kind, ranks, nodes_of(scene, ranks), sure, _summary(scene, kind, ranks, instance))
    cause.where = where_of(scene, instance, None, ranks)
    cause.evidence = _evidence(scene, ranks, instance)
    cause.alternatives = _alternatives(scene, kind, ranks, instance)
    cause.advice = ADVICE.get(kind, "")
    if instance is not None and kind not in ("dead", "stopped", "unreachable", "start_stall", "end_stall"):
        _doubt_if_usual(scene, cause, instance)
        _doubt_if_unrecorded(scene, cause)
    return cause


def _doubt_if_unrecorded(scene: Scene, cause: Cause) -> None:
    """Optimizers that step without an operation in between: gradients are reduced where no record is made.

    A stack outside of all communication (`places`) says that a rank is not in that.
    """
    known = scene.evidence.places
    if cause.kind != "not_entered" or any(r in known or not _steps_unrecorded(scene.ops.get(r)) for r in cause.ranks):
        return
    cause.confidence = min(cause.confidence, 0.45)
    cause.alternatives.insert(
        0, Alternative("order", cause.ranks, "not excluded: gradients are reduced unrecorded here, and they may wait in that")
    )
    cause.advice = "Look at its stack: in backward it waits itself, for ranks that did fewer. " + cause.advice


def _steps_unrecorded(ops: RankOps | None) -> bool:
    return ops is not None and not ops.overwritten and sum(o.op not in STORE for o in ops.operations) < ops.steps


def _doubt_if_usual(scene: Scene, cause: Cause, instance: Instance) -> None:
    """A wait no longer than many that ended well may be a slow rank's: said with the verdict, which is less sure then."""
    now = waited_s(scene, instance)
    each = [_waits_before(scene, rank, instance) for rank in instance.waiters[:8]]
    before = [s for waits in each for s in waits]
    as_long = sum(s >= _AS_LONG * now for s in before)
    of_late = all(len(waits) > 1 and min(waits[-2:]) >= _AS_LONG * now for waits in each)  # it has become slow
    often = len(before) >= _ENOUGH and 2 * as_long >= len(before)
    if now <= 0 or not (often or of_late):
        return
    seen = f"{as_long} of the last {len(before)}" if often else "the last two of each rank"
    cause.confidence = min(cause.confidence, 0.5)
    cause.summary += f"{USUAL} ({seen} took as long): it may only be slow."
    cause.alternatives.insert(0, Alternative("slow", cause.ranks, "not excluded: a longer look tells whether it goes on"))
    longer = math.ceil(max(settling_s(waits) for waits in each))
    cause.advice = f"Look longer first (--settle {longer}): a rank that gets on meanwhile is slow. " + cause.advice


def _waits_before(scene: Scene, rank: int, instance: Instance) -> list[float]:
    sample = instance.sample
    return last_waits(scene.ops[rank], sample.op, {sample.group}) if rank in scene.ops else []


def settling_s(waits: list[float]) -> float:
    """Seconds after which a wait is longer than these, as the doubt above counts them."""
    return _LONGER * max(median(waits), min(waits[-2:])) if waits else 0.0


def last_waits(ops: RankOps, op: str, groups: Collection[str]) -> list[float]:
    """Seconds that a rank spent in its last operations of one kind on these groups (uids)."""
    alike = [o for o in ops.operations if o.op == op and o.group in groups and o.state == "done" and o.left_s > o.entered_s > 0]
    return [o.left_s - o.entered_s for o in alike[-_LOOKED_BACK:]]


def _first_missed(instance: Instance) -> tuple[int, int]:
    """The narrowest operation speaks clearest, of these the one most ranks stand in."""
    return (len(instance.present) + len(instance.absent), -len(instance.waiters))


def _seen(scene: Scene, rank: int, instance: Instance | None) -> bool:
    return instance is None or len(instance.key) != 2 or instance.key[0] in scene.posted(rank)


def _summary(scene: Scene, kind: Kind, ranks: list[int], instance: Instance | None) -> str:
    who, have = capital(ranks_text(ranks)), verb(ranks, "has", "have")
    are = f"{verb(ranks, 'is', 'are')} {_state(scene, kind, ranks)}"
    if instance is None:
        return f"{who} {are}; no operation that waits for it was seen."
    what = instance_text(scene, instance)
    rest = f"{waiting_text(scene, instance)}{place_text(scene, ranks)}."
    if kind in ("dead", "stopped"):
        return f"{who} {are}, and {what} cannot finish without it; {rest}"
    if kind == "start_stall":
        return f"{who} {have} not joined {what}; {rest}"
    if kind == "end_stall":
        return f"{who} {have} not come to {what}, the teardown that the others are in; {rest}"
    if kind == "device_wait":
        return f"{who} enqueued {what}, but its device never came to it; {rest}"
    if is_p2p(instance.key):
        other = "recv" if instance.sample.op in SENDS else "send"
        theirs = f"{instance.sample.op} #{instance.sample.seq} of rank {instance.waiters[0]}"
        return f"{who} never posted the {other} for {theirs}; {rest}"
    return f"{who} never entered {what}; {rest}"


def _state(scene: Scene, kind: Kind, ranks: list[int]) -> str:
    if kind == "dead":
        return f"dead ({scene.evidence.dead[ranks[0]]})"
    return "stopped" if kind == "stopped" else "missing"


def _evidence(scene: Scene, ranks: list[int], instance: Instance | None) -> list[Evidence]:
    found: list[Evidence] = []
    if instance is not None:
        found.append(Evidence("ops", instance.waiters, f"in {instance_text(scene, instance)}, not finished"))
    for rank in ranks[:8]:
        last = scene.ops[rank].operations[-1] if rank in scene.ops and scene.ops[rank].operations else None
        if last is not None:
            state = "finished" if last.state == "done" else "entered"
            found.append(Evidence("ops", [rank], f"its last operation is {last.op} #{last.seq} ({state})"))
        elif rank in scene.ops:
            found.append(Evidence("ops", [rank], "its records hold no operation at all"))
        if rank in scene.evidence.dead:
            found.append(Evidence("proc", [rank], scene.evidence.dead[rank]))
    return found


def _alternatives(scene: Scene, kind: Kind, ranks: list[int], instance: Instance | None) -> list[Alternative]:
    if instance is None or kind in ("dead", "stopped"):
        return []
    found = [Alternative("in_communication", sorted(instance.present), "not all members have come to the operation")]
    if instance.unknown:
        why = "nothing is known of them, but the ranks named above are missing for certain"
        found.append(Alternative("unreachable", instance.unknown, why))
    return found
