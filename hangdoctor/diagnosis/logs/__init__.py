"""Pass: what the job's own output tells, when the job is over or when nothing else was collected.

The order of reasons: what failed by itself before the first wait reached its limit; what torch
names; counters of the group that timed out; who did not time out. What remains is unknown, and the
report says what would have decided it.
"""

from __future__ import annotations

from msgspec import structs

from ...model.log_facts import (
    AnyFact,
    Cancelled,
    Ended,
    Finished,
    GlooTimeout,
    JobLogs,
    PeerClosed,
    Progress,
    TimedOut,
)
from ..case import Case
from ..draft import Draft
from ..findings import Clue
from ..findings.log_stories import LogRemaining, Quote, Undecided
from ..ras_counts import all_equal
from . import by_torch, counters, over, two_sources
from .beside import CRASH, weigh
from .chain import chain
from .first import First, failure, lost_node, quotes
from .scene import Scene, op_of, open_scene, ranks_named

_SETTLED = frozenset({Undecided.ENDED_CLEANLY, Undecided.GOES_ON, Undecided.CANCELLED})


def run(case: Case, draft: Draft) -> None:
    """The verdict of the logs, where nothing else has one; else their evidence beside it."""
    logs = case.capture.logs
    if logs is None:
        return
    scene, found = _judged(logs)
    if case.capture.over:
        found = over.settle(case, draft, scene, found) if draft.findings else found
        found = found or over.did_not_end(case, draft, scene)
    draft.chain = chain(scene, found)
    if found is not None:
        found.finding.clues += _clues(scene, found)
    if draft.findings:
        weigh(draft, scene, found)
        return
    if found is None:
        draft.remaining = structs.replace(why_none(scene), ras=all_equal(case))
        clean = draft.remaining.reason is Undecided.ENDED_CLEANLY
        draft.status = "healthy" if clean and not case.views else draft.status or "unknown"
        return
    two_sources.compare(logs, draft, found.finding, decide)
    draft.findings = [found.finding]
    draft.status = "failed" if found.finding.kind in CRASH else "hang"


def _judged(logs: JobLogs) -> tuple[Scene, First | None]:
    """The last attempt; where that shows consequences only, the one before it, and so on."""
    last = open_scene(logs, logs.attempts - 1)
    found = decide(last)
    if found is not None or why_none(last).reason in _SETTLED:
        return last, found
    for attempt in range(logs.attempts - 2, -1, -1):
        scene = open_scene(logs, attempt)
        earlier = decide(scene)
        if earlier is not None:
            return scene, earlier
    return last, None


def decide(scene: Scene) -> First | None:
    """What the logs name; None where they name no rank."""
    node = lost_node(scene)
    if node is not None:
        return node
    first = failure(scene)
    if first is not None and first.named:
        return first
    named = _named(scene)
    if first is None or (named is not None and named.finding.ranks):
        return named
    return first


def _named(scene: Scene) -> First | None:
    """By the strength of the reason."""
    for reason in (
        by_torch.desync,
        by_torch.barrier,
        by_torch.mismatch,
        by_torch.store,
        counters.judged,
        counters.gloo,
        by_torch.peer,
        by_torch.all_joined,
        counters.everyone_waits,
    ):
        found = reason(scene)
        if found is not None:
            return found
    return None


def _clues(scene: Scene, found: First) -> list[Clue]:
    """The lines that show it."""
    clues = []
    for fact in quotes(found.facts):
        name = scene.logs.files[fact.file].name if fact.file < len(scene.logs.files) else ""
        ranks = (fact.rank,) if fact.rank >= 0 else tuple(found.finding.ranks)
        clues.append(Clue("log", ranks, Quote(name, fact.line, fact.says)))
    return clues


def why_none(scene: Scene) -> LogRemaining:
    """Why the logs name no rank, by how much it explains."""
    cancelled = scene.of(Cancelled)
    if cancelled and not _ended_before(scene, cancelled[-1]):
        return _cancelled(cancelled[-1])
    waits = scene.of(TimedOut)
    ranks = tuple(ranks_named(waits))
    if len(ranks) > 1:
        one = {(w.op, w.seq) for w in waits}
        reason = Undecided.EQUAL_COUNTERS if len(one) == 1 else Undecided.WAITERS_ONLY
        return LogRemaining(reason, ranks, op_of(waits) if len(one) == 1 else None)
    if waits or any(isinstance(f, GlooTimeout) for f in scene.facts):
        op = op_of(waits) if waits else None
        return LogRemaining(Undecided.ONE_WAITER, ranks, op)
    return _without_waits(scene)


def _ended_before(scene: Scene, fact: Cancelled) -> bool:
    """Whether srun cancelled the step itself, after a task had exited with an error."""
    if fact.why:
        return False
    ends = [f for f in scene.of(Ended) if f.by.startswith("slurm") and f.code > 0]
    return any((f.file, f.line) < (fact.file, fact.line) for f in ends)


def _cancelled(fact: Cancelled) -> LogRemaining:
    if "TIME LIMIT" in fact.why:
        return LogRemaining(Undecided.TIME_LIMIT)
    if "PREEMPT" in fact.why:
        return LogRemaining(Undecided.PREEMPTED)
    return LogRemaining(Undecided.CANCELLED)


def _without_waits(scene: Scene) -> LogRemaining:
    victims = scene.victims()
    ends = [f for f in scene.of(Ended) if f.code]
    iteration = max((f.iteration for f in scene.of(Progress)), default=-1)
    ranks = tuple(ranks_named([*victims, *ends]))
    if victims or any(isinstance(f, PeerClosed) for f in scene.facts):
        return LogRemaining(Undecided.VICTIMS_ONLY, ranks)
    if ends:
        return LogRemaining(Undecided.ABORTS_ONLY, ranks, code=ends[0].code)
    complete = any(0 < f.total <= f.iteration for f in scene.of(Progress))
    if (scene.of(Finished) or complete) and not _troubled(scene.facts):
        return LogRemaining(Undecided.ENDED_CLEANLY, iteration=iteration)
    if iteration >= 0:
        return LogRemaining(Undecided.GOES_ON, iteration=iteration)
    return LogRemaining(Undecided.NO_END)


def _troubled(facts: list[AnyFact]) -> bool:
    """Anything that a clean run does not print after its end."""
    return any(isinstance(f, TimedOut | GlooTimeout) for f in facts)


__all__ = ["decide", "run"]
