"""Ranks that printed how long a part of their work took: longer than others waited for them."""

from __future__ import annotations

from ...model.log_facts import TimedOut, Took
from ..confidence import Ground, sure
from ..findings import Finding, Waiters
from ..findings.log_counts import TookLonger
from .candidate import First
from .scene import Scene, is_dated, op_of, ranks_named

_CLOCKS_S = 5.0  # by which the stamps of two lines may differ


def outlasted(scene: Scene) -> First | None:
    """The ranks whose work took longer than the time limit of others, who timed out meanwhile."""
    waits = [w for w in scene.of(TimedOut) if w.rank >= 0]
    limit = min((w.limit_ms for w in waits if w.limit_ms > 0), default=0.0) / 1000
    waiting = ranks_named(waits)
    parts = [f for f in scene.of(Took) if f.rank >= 0 and f.rank not in waiting]
    long = [f for f in parts if f.seconds > limit and any(_at_once(f, wait) for wait in waits)]
    ranks = ranks_named(long)
    if limit <= 0 or not ranks:
        return None
    longest = max(long, key=lambda f: f.seconds)
    at = f"{scene.logs.files[longest.file].name}:{longest.line}"
    op = op_of(waits)
    seconds = max(w.ran_ms for w in waits) / 1000 or limit
    finding = Finding(
        kind="not_entered" if longest.late else "slow",
        ranks=ranks,
        story=TookLonger(longest.seconds, limit, op, longest.says, at, longest.late),
        confidence=sure(Ground.LOG_OUTLASTED),
        nodes=scene.nodes(ranks),
        waiters=Waiters(tuple(waiting), op, seconds),
    )
    finding.where.op, finding.where.seq = op.name or None, op.seq if op.seq >= 0 else None
    return First(finding, [*long, *waits], True)


def _at_once(part: Took, wait: TimedOut) -> bool:
    """Whether the work and the wait may have been at one time; lines without a stamp of their own do
    not show it.
    """
    if not (is_dated(part) and is_dated(wait)):
        return True
    began = wait.at - wait.ran_ms / 1000
    return part.at - part.seconds < wait.at + _CLOCKS_S and began < part.at + _CLOCKS_S
