"""Which rank slows the others while all move between the two captures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from ...model.operations import RankOps
from ..confidence import Ground, sure
from ..findings import Clue, Finding, Pace, SlowByPace, SlowByWaiting
from .facts import nodes_of, place
from .keys import UNNUMBERED
from .moved import moved_ranks
from .overlap import Call, call_of
from .scene import Scene

_WAITING_SHARE = 0.2  # of their time that others spend waiting before a straggler is worth naming
_TIMES_SLOWER = 2.0  # than the next one
_STANDS_OUT = 0.5  # the straggler waits at most so much of what the next one waits
_PART_CLEARLY = 0.2  # the same of several stragglers


def straggler(scene: Scene) -> Finding | None:
    """The rank that the others wait for, from durations alone, since the clocks of nodes differ; None
    where the job does not go on: then earlier waits say nothing of this one.
    """
    if not moved_ranks(scene.evidence.earlier, scene.ops):
        return None
    if all(ops.runs_ahead for ops in scene.ops.values()):
        return _by_pace(scene)
    return _by_waiting(scene)


def _by_waiting(scene: Scene) -> Finding | None:
    """The rank that hardly waits while all others do, or the few of which that holds."""
    shares: dict[int, float] = {}
    for rank, ops in scene.ops.items():
        share = _waiting_share(ops)
        if share is None:
            return None
        shares[rank] = share
    if len(shares) < 2:
        return None
    in_order = sorted(shares, key=lambda r: shares[r])
    several = [n for n in range(2, len(in_order)) if _part(shares, in_order, n, _PART_CLEARLY)]
    number = several[0] if several else 1
    slowest, others = in_order[:number], [shares[r] for r in in_order[number:]]
    usual = median(others)
    if usual < _WAITING_SHARE or not _part(shares, in_order, number, _STANDS_OUT):
        return None
    story = SlowByWaiting(max(shares[r] for r in slowest), usual)
    return _slow(scene, slowest, story, Ground.SLOW_BY_WAITING)


def _part(
    shares: Mapping[int, float], in_order: Sequence[int], number: int, at_most: float
) -> bool:
    """Whether the first `number` ranks each wait at most this share of what any other rank waits."""
    return shares[in_order[number - 1]] <= at_most * shares[in_order[number]]


def _by_pace(scene: Scene) -> Finding | None:
    """The rank that never completes anything as soon as others do after the call before.

    Without times of starts, an interval between two completions holds work and waiting. A rank that
    waits for another one is quick at least in the calls that the other one has no part in.
    """
    paces = {rank: _pace(scene, ops) for rank, ops in scene.ops.items()}
    usual = _usual_paces(paces.values())
    slowness: dict[int, float] = {}
    for rank, pace in paces.items():
        times_slower = [seconds / usual[call] for call, seconds in pace.items() if call in usual]
        if len(times_slower) > 2:
            slowness[rank] = min(times_slower)
    if len(slowness) < 3:
        return None
    slowest = max(slowness, key=lambda r: slowness[r])
    second = max(s for r, s in slowness.items() if r != slowest)
    if slowness[slowest] < _TIMES_SLOWER * max(1.0, second):
        return None
    return _slow(scene, [slowest], SlowByPace(slowness[slowest]), Ground.SLOW_BY_PACE)


def _usual_paces(paces: Iterable[dict[Call, float]]) -> dict[Call, float]:
    """Of each call that some ranks make, how long the quick ones take (the tenth part)."""
    by_call: dict[Call, list[float]] = {}
    for pace in paces:
        for call, seconds in pace.items():
            by_call.setdefault(call, []).append(seconds)
    usual: dict[Call, float] = {}
    for call, found in by_call.items():
        quick = sorted(found)[len(found) // 10]
        if len(found) > 2 and quick > 0:
            usual[call] = quick
    return usual


def _pace(scene: Scene, ops: RankOps) -> dict[Call, float]:
    """Of each call, the shortest time from the completion before it to its own."""
    found: dict[Call, float] = {}
    before = 0.0
    for op in ops.operations:
        if op.state != "done" or op.left_s <= 0:
            break
        seconds = op.left_s - before
        # For a call of the whole job all wait: it shows no difference.
        if before > 0 and seconds > 0 and scene.groups.role(op.group)[0] != scene.world_size:
            call = call_of(scene.groups, op)
            found[call] = min(seconds, found.get(call, seconds))
        before = max(before, op.left_s)
    return found


def _slow(
    scene: Scene, ranks: Sequence[int], story: SlowByWaiting | SlowByPace, ground: Ground
) -> Finding:
    finding = Finding(
        kind="slow",
        ranks=sorted(ranks),
        story=story,
        confidence=sure(ground),
        nodes=nodes_of(scene, [*ranks]),
        clues=[Clue("ops", tuple(sorted(ranks)), Pace(story))],
    )
    return place(scene, finding)


def _waiting_share(ops: RankOps) -> float | None:
    """Share of the recorded time that a rank spent inside collectives and receives; None without
    times.
    """
    done = [o for o in ops.operations if o.state == "done"]
    timed = [o for o in done if o.left_s > 0 and o.entered_s > 0]
    waits = [o for o in timed if o.op not in UNNUMBERED or o.op in ("recv", "send")]
    if len(waits) < 4:
        return None
    span = timed[-1].left_s - timed[0].entered_s
    if span <= 0:
        return None
    return min(1.0, sum(o.left_s - o.entered_s for o in waits) / span)
