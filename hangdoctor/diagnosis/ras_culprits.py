"""Pass: what NCCL's RAS says, where neither operations nor stacks have named a rank.

RAS counts operations per communicator and knows dead peers, but its rank numbers are the
communicator's own: they are the job's where the communicator spans the job.
"""

from __future__ import annotations

from ..model.diagnosis import Where
from ..model.log_facts import TimedOut
from ..model.ras_report import RasCommunicator, RasProcess, RasRank, RasReport, about_another
from .case import Case
from .confidence import Ground, sure
from .draft import Draft
from .findings import (
    Against,
    Clue,
    ErrorByRas,
    FewerByRas,
    Finding,
    LostByRas,
    LostProcesses,
    RasSays,
    RasSeesAll,
    Why,
)
from .ras_counts import Gap, all_equal, gaps_of, lasting, newest
from .ras_ranks import in_job, told

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
    if number < 2:
        return
    for finding in [*draft.findings, *draft.by_stacks]:
        told = any(isinstance(clue.fact, RasSeesAll) for clue in finding.clues)
        if finding.kind in _BEYOND_HOSTS and not told:
            finding.clues.append(Clue("ras", tuple(finding.ranks), RasSeesAll(number)))


def find(case: Case) -> list[Finding]:
    """What the latest snapshot shows, of its largest communicator that shows anything."""
    for report in newest(case):
        found = _of_report(case, report)
        if found and (_shows_hang(case, report) or found[0].kind != "unreachable"):
            return found
    return []


def no_data(case: Case) -> Finding | None:
    """Which processes gave RAS no data, where nothing shows that others wait for them."""
    found = [finding for report in newest(case) for finding in _of_report(case, report)]
    return next((finding for finding in found if finding.kind == "unreachable"), None)


def _shows_hang(case: Case, report: RasReport) -> bool:
    """Whether more than a missing answer speaks of a hang: a process may answer RAS late, or have left
    the communicator, in a job that goes on. Beside processes that were captured, they say that.
    """
    logs = case.capture.logs
    timed_out = logs is not None and any(isinstance(fact, TimedOut) for fact in logs.facts)
    if case.views or report.dead or timed_out:
        return True
    gaps = [gap for communicator in report.communicators for gap in gaps_of(communicator)]
    return any(lasting(case, gap) for gap in gaps)


def _of_report(case: Case, report: RasReport) -> list[Finding]:
    for communicator in sorted(report.communicators, key=lambda c: -c.size):
        gone = [r for r in communicator.missing if r.state in _LOST]
        if gone:
            return [_lost(case, report, communicator, gone)]
        failed = [r for r in communicator.ranks if r.error and not about_another(r.error)]
        if failed:
            return [_failed(case, report, communicator, failed)]
        gaps = [gap for gap in gaps_of(communicator) if lasting(case, gap)]
        if gaps and not (report.dead or report.silent):
            return [_fewer(case, report, gap) for gap in gaps]
    processes = report.dead or report.silent
    return [_lost_processes(report, processes)] if processes else []


def _lost(
    case: Case, report: RasReport, communicator: RasCommunicator, gone: list[RasRank]
) -> Finding:
    ranks, members = in_job(case, report, communicator, [r.rank for r in gone])
    hosts = sorted({r.process.host for r in gone if r.process.host})
    if not hosts:  # NCCL 2.24 names the processes apart from the ranks
        hosts = sorted({p.host for p in [*report.dead, *report.silent] if p.host})
    story = LostByRas(members, tuple(hosts), dead=all(r.state == "dead" for r in gone))
    return Finding(
        kind="unreachable",
        ranks=ranks,
        story=story,
        confidence=sure(Ground.RAS_LOST if members is None else Ground.RAS_LOST_ELSEWHERE),
        nodes=hosts,
        where=Where(group=communicator.hash),
        clues=[Clue("ras", tuple(ranks), RasSays(story))],
    )


def _failed(
    case: Case, report: RasReport, communicator: RasCommunicator, failed: list[RasRank]
) -> Finding:
    """Ranks that report an error which is not about another process; the first kind of it."""
    alike = [r for r in failed if r.error == failed[0].error]
    ranks, members = in_job(case, report, communicator, [r.rank for r in alike])
    story = ErrorByRas(members, failed[0].error)
    return Finding(
        kind="error",
        ranks=ranks,
        story=story,
        confidence=sure(Ground.RAS_ERROR),
        nodes=sorted({r.process.host for r in alike if r.process.host}),
        where=Where(group=communicator.hash),
        clues=[Clue("ras", tuple(ranks), RasSays(story))],
    )


def _lost_processes(report: RasReport, processes: list[RasProcess]) -> Finding:
    """Processes without any communicator: their ranks are known where another one names them."""
    known = {(r.process.host, r.process.pid): r.rank for c in report.communicators for r in c.ranks}
    keys = [(p.host, p.pid) for p in processes]
    ranks = sorted({known[key] for key in keys if key in known})
    story = LostProcesses(told(processes), bool(report.dead))
    return Finding(
        kind="unreachable",
        ranks=ranks,
        story=story,
        confidence=sure(Ground.RAS_PROCESS),
        nodes=sorted({p.host for p in processes if p.host}),
        clues=[Clue("ras", tuple(ranks), RasSays(story))],
    )


def _fewer(case: Case, report: RasReport, gap: Gap) -> Finding:
    found, members = in_job(case, report, gap.communicator, gap.behind)
    ahead: tuple[int, ...] = ()
    if not gap.few:
        others, unknown = in_job(case, report, gap.communicator, gap.ahead)
        ahead = tuple(others if unknown is None else unknown.ranks)
    story = FewerByRas(members, gap.op, gap.launched, ahead, ahead_at=gap.ahead_at)
    ground = Ground.RAS_FEWER if members is None else Ground.RAS_FEWER_ELSEWHERE
    ranks = tuple(found)
    processes = members.processes if members is not None else ()
    return Finding(
        kind="not_entered",
        ranks=found,
        story=story,
        confidence=sure(ground if gap.few else Ground.RAS_BEHIND),
        nodes=sorted({host for host, _, _ in processes if host}),
        where=Where(group=gap.communicator.hash, op=gap.op or None),
        clues=[Clue("ras", ranks, RasSays(story))],
        against=[Against("in_communication", ranks, Why.LAUNCHED_UNEQUALLY)],
    )
