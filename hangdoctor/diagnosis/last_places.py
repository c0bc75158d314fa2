"""Pass: of a job that is over, says which stacks are meant: those that heartbeats saw last."""

from __future__ import annotations

from msgspec import structs

from .case import Case
from .confidence import Limit
from .draft import Draft
from .findings import Clue, DidNotRun, Finding, SeenByHeartbeat, WaitsIn


def run(case: Case, draft: Draft) -> None:
    """Evidence from two samples is none here: a heartbeat sees a place, not whether it ran."""
    if not case.capture.by_heartbeat:
        return
    for finding in draft.findings:
        if any(clue.source == "stack" for clue in finding.clues):
            _mark(case, finding)


def _mark(case: Case, finding: Finding) -> None:
    kept = [clue for clue in finding.clues if not isinstance(clue.fact, DidNotRun)]
    finding.clues = [_without_motion(clue) for clue in kept]
    seen = tuple(v.rank for v in case.views if v.capture.samples)
    finding.clues.append(Clue("stack", seen, SeenByHeartbeat()))
    finding.confidence = min(finding.confidence, Limit.BY_HEARTBEAT.highest)


def _without_motion(clue: Clue) -> Clue:
    fact = clue.fact
    if isinstance(fact, WaitsIn):
        return structs.replace(clue, fact=structs.replace(fact, still=()))
    return clue
