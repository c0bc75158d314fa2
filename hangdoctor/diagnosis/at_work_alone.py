"""Pass: of a job that is over, whose calls no box counts: a rank that was at work until the end while all
others had long been in calls that wait for it.

A black box of MPI or JAX has the place of a rank only where nothing had got on; one without it, whose
signs of life go to the end, had.
"""

from __future__ import annotations

from .case import Case, finding_on, op_of, ranks_of
from .compiled_calls import all_in_jax, all_in_mpi
from .confidence import Ground, Limit, sure
from .draft import Draft
from .findings import Clue, Doing, Finding, NeverReached, SeenByHeartbeat, Waiters, WaitsIn
from .view import RankView


def run(case: Case, draft: Draft) -> None:
    """Name it, where nothing else says what the job waited for."""
    working = [view for view in case.alive if view.capture.at_work]
    if not case.capture.over or draft.findings or not working or case.gone or case.absent:
        return
    waiting = [view for view in case.alive if view.waits]
    everyone = len(working) + len(waiting) == case.world_size
    if everyone and len(working) < len(waiting) and (all_in_mpi(waiting) or all_in_jax(waiting)):
        draft.findings = [_finding(case, working, waiting)]


def _finding(case: Case, working: list[RankView], waiting: list[RankView]) -> Finding:
    op, others = op_of(waiting), ranks_of(waiting)
    confidence = sure(Ground.OUTSIDE, Limit.BY_HEARTBEAT)
    finding = finding_on(case, "busy", working, NeverReached(op), confidence=confidence)
    finding.doing, finding.waiters = Doing("running"), Waiters(others, op)
    if len(working) == 1:
        finding.frame = working[0].capture.worked_in
    seen = Clue("stack", others, SeenByHeartbeat())
    finding.clues = [Clue("stack", others, WaitsIn()), seen]
    return finding
