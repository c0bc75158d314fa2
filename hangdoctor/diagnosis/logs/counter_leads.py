"""Counters that name no rank, and still show which ranks the waiters have left behind."""

from __future__ import annotations

from ...model.log_facts import Counted, GlooTimeout, PeerClosed, Progress, WaitsFor
from ..findings import Op
from ..findings.log_counts import Ahead
from ..findings.log_remaining import LogRemaining, Undecided
from .counters import Group, groups
from .scene import Scene, op_of, ranks_named

_UNSET = 1 << 31  # a counter that was never written


def left_behind(scene: Scene) -> LogRemaining | None:
    """A few waiters in an operation that most of those who told their counters never called: all of
    these are through with what they called. Which side is wrong does not show.
    """
    for group in groups(scene):
        others = {r: c for r, c in group.counts.items() if _is_through(group, c)}
        told = [group.counts[r].enqueued for r in group.waits if r in group.counts]
        called = [number for number in told if group.seq <= number < _UNSET]
        if group.seq <= 0 or not called or len(others) <= len(group.waits):
            continue
        elsewhere = set(ranks_named(scene.of(GlooTimeout))) - {*group.waits, *others}
        ahead = Ahead(
            called=max(called),
            others=tuple(sorted(others)),
            last=max(count.enqueued for count in others.values()),
            elsewhere=tuple(sorted(elsewhere)),
        )
        op = Op(op_of(group.waits.values()).name, group.seq)
        return LogRemaining(Undecided.AHEAD, tuple(sorted(group.waits)), op, ahead=ahead)
    return None


def _is_through(group: Group, count: Counted) -> bool:
    """Whether it has completed all that it called, and not called what the others wait in."""
    if count.rank in group.waits or not 0 <= count.enqueued < group.seq:
        return False
    return count.enqueued == count.completed


def in_gloo(scene: Scene, waiters: LogRemaining) -> LogRemaining:
    """Of one waiter that is not the only one: others waited in gloo until its limit."""
    others = tuple(sorted(set(ranks_named(scene.of(GlooTimeout))) - set(waiters.ranks)))
    if not others or waiters.op is None:
        return waiters
    waited = ((waiters.ranks, waiters.op), (others, Op("gloo")))
    every = tuple(sorted({*waiters.ranks, *others}))
    return LogRemaining(Undecided.WAITERS_ONLY, every, waited=waited)


def awaited(scene: Scene) -> int:
    """The one rank that a line says its speaker waited for; -1 of none or several."""
    told = {int(f.peer) for f in scene.of(PeerClosed) if f.peer.isdigit()}  # by monitored_barrier
    told |= {f.awaited for f in scene.of(WaitsFor) if f.awaited != f.rank and not _passed(scene, f)}
    return told.pop() if len(told) == 1 else -1


def _passed(scene: Scene, word: WaitsFor) -> bool:
    """Whether the job made progress after it."""
    return any(f.file == word.file and f.moved > word.line for f in scene.of(Progress))
