"""A rank that others wait for and that waits for no other: a culprit, explained by its state."""

from __future__ import annotations

import math
from collections.abc import Collection
from statistics import median
from typing import cast, get_args

from msgspec import Struct, structs

from ...model.diagnosis import Kind
from ...model.operations import STORE, RankOps
from .. import findings as f
from ..confidence import Ground, Less, Limit, limited, lowered, sure
from ..findings import Against, Clue, Finding, Usual, Why
from .facts import in_op, nodes_of, place, sample_of, waited_s, waiters_of, where_of
from .key_setters import STORE_WAIT, setter
from .keys import Collectives
from .scene import Scene
from .waits import Instance, failed_in

_AS_LONG = 0.8  # of the present wait
_LONGER = 1.3  # than usual: no doubt is left then, with a margin over 1 / _AS_LONG
_ASKED = 8  # waiters whose earlier waits are compared
_LOOKED_BACK = 10  # operations of each waiter
_ENOUGH = 6  # of them, to speak of what is usual
_SHOWN = 8  # ranks whose last operation is evidence
_SETTING_UP = frozenset({"init_process_group", "new_group", "store_wait"})
_FROM_OUTSIDE = frozenset(get_args(Kind)) - {
    "dead",
    "stopped",
    "unreachable",
    "slow",
    "in_communication",
}
# Kinds that are no less sure where long waits are usual.
_CERTAIN = frozenset({"dead", "stopped", "unreachable", "start_stall", "end_stall"})


class Sink(Struct):
    """A rank at the end of all waits, and the instances in which it is missed."""

    rank: int
    instances: list[Instance]


def kind_of(scene: Scene, sink: Sink) -> Kind:
    """What is wrong with the rank, by its process, its stack, and the operations that lack it."""
    evidence, rank = scene.evidence, sink.rank
    if rank in evidence.dead:
        return "dead"
    if rank in evidence.stopped:
        return "stopped"
    ops = {i.sample.op for i in sink.instances}
    if ops and ops <= _SETTING_UP and not _past_set_up(scene, sink):
        return "start_stall"
    by_stack = evidence.outside.get(rank, "")
    if by_stack in _FROM_OUTSIDE:
        return cast(Kind, by_stack)
    if ops == {"destroy_process_group"}:
        return "end_stall"
    frontier = scene.frontier(rank)
    if frontier.open and not frontier.active:
        return "device_wait"
    return "not_entered"


def _past_set_up(scene: Scene, sink: Sink) -> bool:
    """Whether it, or one that waits for it, has communicated before: then new_group is an operation
    like any other. A key of the store that is waited for once it has joined is the job's own.
    """
    own = scene.ops[sink.rank].operations if sink.rank in scene.ops else []
    joined = any(o.op == "init_process_group" and o.state == "done" for o in own)
    if joined and all(i.sample.op == "store_wait" for i in sink.instances):
        return True
    ranks = {sink.rank, *(r for instance in sink.instances for r in instance.waiters)}
    return any(r in scene.ops and scene.ops[r].has_communicated() for r in ranks)


def find_alone(scene: Scene, found: list[Sink]) -> list[Finding]:
    """One finding for all sinks of one kind that are missed in the same instances and are in the
    same place.
    """
    together: dict[tuple[Kind, tuple[str, ...], str, int], list[Sink]] = {}
    for sink in found:
        kind = kind_of(scene, sink)
        missed_in = tuple(sorted(str(i.key) for i in sink.instances[:4]))
        place = str(scene.evidence.places.get(sink.rank, ""))
        alone = sink.rank if kind in ("dead", "stopped") else -1
        together.setdefault((kind, missed_in, place, alone), []).append(sink)
    return [_finding(scene, sinks) for sinks in together.values()]


def _finding(scene: Scene, sinks: list[Sink]) -> Finding:
    ranks = sorted(s.rank for s in sinks)
    kind = kind_of(scene, sinks[0])
    instance = min(sinks[0].instances, key=_narrowest, default=None)
    finding = Finding(
        kind=kind,
        ranks=ranks,
        story=_story(scene, kind, ranks, instance),
        confidence=_confidence(scene, ranks, instance),
        nodes=nodes_of(scene, ranks),
        where=where_of(scene, instance, None, ranks),
        waiters=waiters_of(scene, instance),
        clues=_clues(scene, ranks, instance),
        against=_against(kind, ranks, instance),
    )
    if instance is None and kind not in _CERTAIN:  # only silent ranks seem to wait for it
        finding.confidence = lowered(finding.confidence, Less.AROUND_SILENCE)
    elif instance is not None and kind not in _CERTAIN:
        _doubt_if_usual(scene, finding, instance)
        _doubt_if_unrecorded(scene, finding)
    return place(scene, finding)


def _confidence(scene: Scene, ranks: list[int], instance: Instance | None) -> float:
    inferred = instance is not None and instance.key.group in scene.groups.inferred
    ground = Ground.NOT_AT_INFERRED if inferred else Ground.NOT_AT_OPERATION
    overwritten = [r for r in ranks if r in scene.ops and scene.ops[r].overwritten]
    if any(not _seen(scene, r, instance) for r in overwritten):
        return sure(ground, Less.OVERWRITTEN)
    return sure(ground)


def _doubt_if_unrecorded(scene: Scene, finding: Finding) -> None:
    """Optimizers that step without an operation in between: gradients are reduced where no record
    is made.

    A stack outside of all communication (`places`) shows that a rank is not in that.
    """
    if finding.kind != "not_entered":
        return
    if not all(_maybe_unrecorded(scene, r) for r in finding.ranks):
        return
    finding.confidence = limited(finding.confidence, Limit.UNRECORDED_GRADIENTS)
    finding.against.insert(0, Against("order", tuple(finding.ranks), Why.UNRECORDED_GRADIENTS))
    finding.unrecorded = True


def _maybe_unrecorded(scene: Scene, rank: int) -> bool:
    ops = scene.ops.get(rank)
    if rank in scene.evidence.places or ops is None or ops.overwritten:
        return False
    return sum(o.op not in STORE for o in ops.operations) < ops.steps


def _doubt_if_usual(scene: Scene, finding: Finding, instance: Instance) -> None:
    """A wait no longer than many that ended well may be a slow rank's: the finding says so and is
    less sure.
    """
    now = waited_s(scene, instance)
    if now <= 0 or scene.evidence.kept:
        return
    each = [_waits_before(scene, rank, instance) for rank in instance.waiters[:_ASKED]]
    before = [seconds for waits in each for seconds in waits]
    as_long = sum(seconds >= _AS_LONG * now for seconds in before)
    often = len(before) >= _ENOUGH and 2 * as_long >= len(before)
    if not often and not all(_has_become_slow(waits, now) for waits in each):
        return
    longer = math.ceil(max(settling_s(waits) for waits in each))
    finding.usual = Usual(as_long, len(before), longer) if often else Usual(0, 0, longer)
    finding.confidence = limited(finding.confidence, Limit.USUAL_WAIT)
    finding.against.insert(0, Against("slow", tuple(finding.ranks), Why.MAY_BE_SLOW))


def _has_become_slow(waits: list[float], now: float) -> bool:
    """Whether a rank's last two waits were as long as the present one."""
    return len(waits) > 1 and min(waits[-2:]) >= _AS_LONG * now


def _waits_before(scene: Scene, rank: int, instance: Instance) -> list[float]:
    sample = instance.sample
    return last_waits(scene.ops[rank], sample.op, {sample.group}) if rank in scene.ops else []


def settling_s(waits: list[float]) -> float:
    """Seconds after which a wait is longer than these, as the doubt above counts them."""
    return _LONGER * max(median(waits), min(waits[-2:])) if waits else 0.0


def last_waits(ops: RankOps, op: str, groups: Collection[str]) -> list[float]:
    """Seconds that a rank spent in its last operations of one kind on these groups (uids)."""
    alike = [o for o in ops.operations if o.op == op and o.group in groups and o.state == "done"]
    waits = [o.left_s - o.entered_s for o in alike if o.left_s > o.entered_s > 0]
    return waits[-_LOOKED_BACK:]


def _narrowest(instance: Instance) -> tuple[int, int]:
    """The narrowest operation speaks clearest, of these the one that most ranks are in."""
    return (len(instance.present) + len(instance.absent), -len(instance.waiters))


def _seen(scene: Scene, rank: int, instance: Instance | None) -> bool:
    if instance is None or not isinstance(instance.key.counter, Collectives):
        return True
    return instance.key.counter in scene.posted(rank)


def _story(scene: Scene, kind: Kind, ranks: list[int], instance: Instance | None) -> f.Story:
    if kind == "dead":
        return f.Died(scene.evidence.dead[ranks[0]])
    if kind == "stopped":
        return f.Stopped("signal")
    if instance is None:
        return f.NeverReached(None)
    op = sample_of(scene, instance)
    if kind in ("start_stall", "end_stall"):
        return f.NotJoined(op)
    if kind == "device_wait":
        return f.NeverStarted(op)
    if instance.key.transfer is not None:
        return f.NeverPosted(op, instance.waiters[0])
    if _key_of(scene, ranks, instance):
        op = structs.replace(op, name=f"the line that sets {_key_of(scene, ranks, instance)}")
    raised = all(failed_in(scene, rank, instance.key) for rank in ranks)
    return f.NeverReached(op, raised=raised)


def _key_of(scene: Scene, ranks: list[int], instance: Instance) -> str:
    """The key of the store for which the others wait, where it says that these ranks are to set it."""
    sample, waiter = instance.sample, scene.ops.get(instance.waiters[0])
    told = sample.op == STORE_WAIT and waiter is not None and setter(waiter, sample) in ranks
    return sample.detail if told else ""


def _clues(scene: Scene, ranks: list[int], instance: Instance | None) -> list[Clue]:
    found: list[Clue] = []
    if instance is not None:
        key = _key_of(scene, ranks, instance)
        fact = f.WaitsInKey(key) if key else in_op(scene, instance)
        found.append(Clue("ops", tuple(instance.waiters), fact))
    for rank in ranks[:_SHOWN]:
        if rank in scene.ops:
            found.append(Clue("ops", (rank,), _last_op(scene, rank)))
        if rank in scene.evidence.dead:
            found.append(Clue("proc", (rank,), f.Ended(scene.evidence.dead[rank])))
    return found


def _last_op(scene: Scene, rank: int) -> f.LastOp:
    operations = scene.ops[rank].operations
    if not operations:
        return f.LastOp(None)
    last = operations[-1]
    return f.LastOp(f.Op(last.op, last.seq), last.state == "done")


def _against(kind: Kind, ranks: list[int], instance: Instance | None) -> list[Against]:
    if instance is None or kind in ("dead", "stopped"):
        return []
    found = [Against("in_communication", tuple(sorted(instance.present)), Why.NOT_ALL_IN)]
    unknown = tuple(instance.unknown)
    if unknown:
        found.append(Against("unreachable", unknown, Why.UNKNOWN_BUT_OTHERS_MISSING))
    return found
