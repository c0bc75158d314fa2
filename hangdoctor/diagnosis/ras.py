"""Pass: what NCCL's RAS says, where neither operations nor stacks have named a rank.

RAS counts operations per communicator and knows dead peers, but its rank numbers are the
communicator's own: they are the job's where the communicator spans the job.
"""

from __future__ import annotations

from ..model.diagnosis import Where
from ..model.ras import RasCommunicator, RasCounts, RasRank, RasReport
from .case import Case
from .confidence import Ground, sure
from .draft import Draft
from .findings import Against, Clue, FewerByRas, Finding, LostByRas, RasSays, Why

_LOST = frozenset({"missing", "dead", "unresponsive"})
_UNKNOWN_SIZE = 1 << 30  # any number of ranks is few of so many


def run(case: Case, draft: Draft) -> None:
    """Ask RAS where nothing else has named a rank and the operations, if there are any, show no
    reason.
    """
    if draft.findings or draft.by_stacks or draft.beyond or draft.status not in (None, "unknown"):
        return
    if draft.ops is not None and draft.ops.status != "unknown":
        return
    draft.findings = find(case)
    if draft.findings and draft.ops is not None:
        draft.status = "hang"


def find(case: Case) -> list[Finding]:
    """What RAS shows of the largest communicator that shows anything."""
    found: list[Finding] = []
    for report in (n.ras for n in case.capture.nodes if n.ras is not None):
        found += _of_report(case, report)
    return found


def _of_report(case: Case, report: RasReport) -> list[Finding]:
    for communicator in sorted(report.communicators, key=lambda c: -c.size):
        ours = communicator.size in (0, case.world_size) or not case.views
        gone = [r for r in communicator.missing if r.state in _LOST]
        if gone:
            return [_lost(communicator, gone, ours)]
        fewer = [_fewer(communicator, row, ours) for row in _behind(communicator)]
        if fewer:
            return fewer
    return []


def _behind(communicator: RasCommunicator) -> list[RasCounts]:
    """The ranks that have launched fewest of an operation, where they are the few and are named."""
    by_op: dict[str, list[RasCounts]] = {}
    for row in communicator.differences:
        by_op.setdefault(row.op, []).append(row)
    fewest = [min(rows, key=lambda r: r.launched) for rows in by_op.values() if len(rows) > 1]
    size = communicator.size or _UNKNOWN_SIZE
    return [row for row in fewest if row.ranks and 2 * row.number < size]


def _lost(communicator: RasCommunicator, gone: list[RasRank], ours: bool) -> Finding:
    ranks = sorted(r.rank for r in gone)
    hosts = sorted({r.process.host for r in gone if r.process.host})
    story = LostByRas("" if ours else communicator.hash, tuple(hosts))
    return Finding(
        kind="unreachable",
        ranks=ranks,
        story=story,
        confidence=sure(Ground.RAS_LOST if ours else Ground.RAS_LOST_ELSEWHERE),
        nodes=hosts,
        where=Where(group=communicator.hash),
        clues=[Clue("ras", tuple(ranks), RasSays(story))],
    )


def _fewer(communicator: RasCommunicator, row: RasCounts, ours: bool) -> Finding:
    story = FewerByRas("" if ours else communicator.hash, row.op, row.launched)
    return Finding(
        kind="not_entered",
        ranks=row.ranks,
        story=story,
        confidence=sure(Ground.RAS_FEWER if ours else Ground.RAS_FEWER_ELSEWHERE),
        where=Where(group=communicator.hash, op=row.op or None),
        clues=[Clue("ras", tuple(row.ranks), RasSays(story))],
        against=[Against("in_communication", tuple(row.ranks), Why.LAUNCHED_UNEQUALLY)],
    )
