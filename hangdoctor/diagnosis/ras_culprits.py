"""Pass: what NCCL's RAS says, where neither operations nor stacks have named a rank.

RAS counts operations per communicator and knows dead peers, but its rank numbers are the
communicator's own: they are the job's where the communicator spans the job.
"""

from __future__ import annotations

from ..model.diagnosis import Where
from ..model.ras_report import RasCommunicator, RasProcess, RasRank, RasReport
from .case import Case
from .confidence import Ground, sure
from .draft import Draft
from .findings import (
    Against,
    Clue,
    FewerByRas,
    Finding,
    LostByRas,
    LostProcesses,
    RasSays,
    RasSeesAll,
    Why,
)
from .ras_counts import Gap, all_equal, gaps_of, lasting, newest

_LOST = frozenset({"missing", "dead", "unresponsive"})
_BEYOND_HOSTS = frozenset({"in_communication", "device_wait"})


def run(case: Case, draft: Draft) -> None:
    """Ask RAS where nothing else has named a rank and the operations, if there are any, show no
    reason.
    """
    _support(case, draft)
    if draft.findings or draft.by_stacks or draft.beyond or draft.status not in (None, "unknown"):
        return
    if draft.ops is not None and draft.ops.status != "unknown":
        return
    draft.findings = find(case)
    if draft.findings and draft.ops is not None:
        draft.status = "hang"


def _support(case: Case, draft: Draft) -> None:
    """RAS that reaches all ranks is evidence for what lies beyond the hosts."""
    number = all_equal(case)
    if not number:
        return
    for finding in [*draft.findings, *draft.by_stacks]:
        told = any(isinstance(clue.fact, RasSeesAll) for clue in finding.clues)
        if finding.kind in _BEYOND_HOSTS and not told:
            finding.clues.append(Clue("ras", tuple(finding.ranks), RasSeesAll(number)))


def find(case: Case) -> list[Finding]:
    """What the latest snapshot shows, of its largest communicator that shows anything."""
    for report in newest(case):
        found = _of_report(case, report)
        if found:
            return found
    return []


def _of_report(case: Case, report: RasReport) -> list[Finding]:
    for communicator in sorted(report.communicators, key=lambda c: -c.size):
        ours = communicator.size in (0, case.world_size) or not case.views
        gone = [r for r in communicator.missing if r.state in _LOST]
        if gone:
            return [_lost(report, communicator, gone, ours)]
        fewer = [_fewer(g, ours) for g in gaps_of(communicator) if lasting(case, g)]
        if fewer and not (report.dead or report.silent):
            return fewer
    processes = report.dead or report.silent
    return [_lost_processes(report, processes)] if processes else []


def _lost(
    report: RasReport, communicator: RasCommunicator, gone: list[RasRank], ours: bool
) -> Finding:
    ranks = sorted(r.rank for r in gone)
    hosts = sorted({r.process.host for r in gone if r.process.host})
    if not hosts:  # NCCL 2.24 names the processes apart from the ranks
        hosts = sorted({p.host for p in [*report.dead, *report.silent] if p.host})
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


def _lost_processes(report: RasReport, processes: list[RasProcess]) -> Finding:
    """Processes without any communicator: their ranks are known where another one names them."""
    known = {(r.process.host, r.process.pid): r.rank for c in report.communicators for r in c.ranks}
    keys = [(p.host, p.pid) for p in processes]
    ranks = sorted({known[key] for key in keys if key in known})
    told = tuple((p.host, p.pid, p.gpu) for p in processes)
    story = LostProcesses(told, bool(report.dead))
    return Finding(
        kind="unreachable",
        ranks=ranks,
        story=story,
        confidence=sure(Ground.RAS_PROCESS),
        nodes=sorted({p.host for p in processes if p.host}),
        clues=[Clue("ras", tuple(ranks), RasSays(story))],
    )


def _fewer(gap: Gap, ours: bool) -> Finding:
    name = "" if ours else gap.communicator.hash
    ahead = () if gap.few else tuple(gap.ahead)
    story = FewerByRas(name, gap.op, gap.launched, ahead, ahead_at=gap.ahead_at)
    ground = Ground.RAS_FEWER if ours else Ground.RAS_FEWER_ELSEWHERE
    ranks = tuple(gap.behind)
    return Finding(
        kind="not_entered",
        ranks=gap.behind,
        story=story,
        confidence=sure(ground if gap.few else Ground.RAS_BEHIND),
        where=Where(group=gap.communicator.hash, op=gap.op or None),
        clues=[Clue("ras", ranks, RasSays(story))],
        against=[Against("in_communication", ranks, Why.LAUNCHED_UNEQUALLY)],
    )
