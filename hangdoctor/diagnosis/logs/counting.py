"""Counts that a program prints beside its iterations, `eval 55/300`: what they say of a wait, and of a
job that was ended from outside.
"""

from __future__ import annotations

from ...model.log_facts import Progress, TimedOut
from ..case import Case
from ..confidence import Ground, Limit, limited, sure
from ..draft import Draft
from ..findings import Finding, Waiters
from ..findings.log_stories import DidNotTimeOut, Quote, StillCounted
from .candidate import First
from .outside import from_outside
from .scene import Scene, op_of, ranks_named

_ENOUGH = 3  # waiters, or counts
_SHORT_S = 60.0  # a wait that many evaluations and saves take


def counted_on(scene: Scene) -> First | None:
    """The only rank below the highest that did not time out, where the log goes on counting after the
    others' limit: those that wait print nothing.
    """
    waits = [w for w in scene.of(TimedOut) if w.rank >= 0]
    waiting = ranks_named(waits)
    missing = sorted(set(range(max([*waiting, *scene.everyone], default=-1) + 1)) - set(waiting))
    if len(waiting) < _ENOUGH or len(missing) != 1 or len({(w.op, w.seq) for w in waits}) > 1:
        return None
    first = min(waits, key=lambda w: (w.file, w.line))
    counts = [f for f in scene.of(Progress) if f.file == first.file and f.moved > first.line]
    own = [f for f in counts if f.rank in (-1, *missing)]
    if not own:
        return None
    op, seconds = op_of(waits), max(w.ran_ms for w in waits) / 1000
    heard = missing[0] in scene.logs.heard
    finding = Finding(
        kind="slow",
        ranks=missing,
        story=DidNotTimeOut(op, heard, counting=own[-1].says),
        confidence=sure(Ground.LOG_COUNTED_ON),
        nodes=scene.nodes(missing),
        waiters=Waiters(tuple(waiting), op, seconds),
    )
    finding.where.op = op.name
    return First(finding, [*own, *waits], True)


def last_printed(scene: Scene) -> Quote | None:
    """The last progress in the log, of iterations or of a part."""
    own = set(scene.logs.of_boxes)
    counts = [f for f in scene.of(Progress) if f.file not in own]
    if not counts:
        return None
    last = max(counts, key=lambda f: (f.at, f.file, f.line))
    return scene.quote(last)


def at_work(case: Case, draft: Draft, scene: Scene) -> None:
    """Of a job that was ended from outside while few ranks were in their own code: slow where the log
    counted on in it; less sure where the others had not waited long.
    """
    away = [f for f in draft.findings if f.kind == "not_entered" and f.waiters is not None]
    if not away or len(draft.findings) > 1 or from_outside(case, scene) is None:
        return
    finding = away[0]
    count = _counted_in(scene, finding)
    if count is not None:
        waiters = finding.waiters
        finding.kind, draft.status = "slow", "slow"
        finding.story = StillCounted(count, waiters.seconds if waiters is not None else 0.0)
        finding.confidence = sure(Ground.LOG_COUNTED_ON)
    elif finding.waiters is not None and 0 < finding.waiters.seconds < _SHORT_S:
        finding.confidence = limited(finding.confidence, Limit.SHORT_WAIT)


def _counted_in(scene: Scene, finding: Finding) -> Quote | None:
    """The count of a part that began after the last iteration and had not come to its end."""
    own = set(scene.logs.of_boxes)
    counts = [f for f in scene.of(Progress) if f.file not in own]
    steps = [(f.file, f.line) for f in counts if not f.part]
    parts = [f for f in counts if f.part and f.times >= _ENOUGH and f.iteration < f.total]
    parts = [f for f in parts if f.rank in (-1, *finding.ranks)]
    if len(finding.ranks) != 1 or not parts:
        return None
    last = parts[-1]
    if any(file == last.file and line > last.line for file, line in steps):
        return None
    return scene.quote(last)
