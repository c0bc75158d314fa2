"""How many operations NCCL's RAS counts for each rank: who is behind, and whether that lasts.

A gap of one operation in one snapshot is usual: some have launched the next one already. Only a
second snapshot, or ranks that are seen to wait, make it evidence.
"""

from __future__ import annotations

from msgspec import Struct

from ..model.ras_report import RasCommunicator, RasCounts, RasReport
from .case import Case
from .ras_ranks import in_job

REPEATED_S = 2.0  # between two snapshots that show what moved
_LARGE = 1 << 30  # any number of ranks is few of so many


class Gap(Struct):
    """Ranks of one communicator that have launched fewer of one operation than others."""

    communicator: RasCommunicator
    op: str
    launched: int
    behind: list[int]
    ahead: list[int]  # those with the most launches, where they are named
    ahead_at: int
    few: bool  # those behind are the minority


class Counted(Struct):
    """What the snapshots show where they decide nothing."""

    size: int  # ranks of the largest communicator
    behind: tuple[int, ...] = ()
    elsewhere: tuple[str, ...] = ()  # communicators whose members behind have no known rank
    moved: bool = False  # those behind have launched more since an earlier snapshot
    timeouts: int = 0  # requests of RAS itself that were not answered
    states: tuple[tuple[int, str], ...] = ()  # of ranks whose state is not that of the others
    error: str = ""  # that ranks report about another process


def latest(case: Case) -> list[RasReport]:
    """The snapshots, the latest first."""
    reports = [n.ras for n in case.capture.nodes if n.ras is not None]
    return sorted(reports, key=lambda r: -r.at_s)


def newest(case: Case) -> list[RasReport]:
    """Those of the latest moment: each node of a live job gives an answer."""
    reports = latest(case)
    return [r for r in reports if reports[0].at_s - r.at_s < REPEATED_S]


def read(case: Case) -> Counted | None:
    """Of a job of which only RAS is known: the ranks that are one operation behind, or none where
    all counts are equal; None where it lost processes or shows nothing.
    """
    report = next(iter(latest(case)), None)
    if report is None or _names_faults(report):
        return None
    communicators = report.communicators
    size = max([report.largest, *(c.size for c in communicators)])
    gaps = [g for c in communicators for g in gaps_of(c)]
    if not (size or gaps):
        return None
    named = [(g, *in_job(case, report, g.communicator, g.behind)) for g in gaps]
    errors = [r.error for c in communicators for r in c.ranks if r.error]
    return Counted(
        size,
        tuple(sorted({rank for _, ranks, _ in named for rank in ranks})),
        tuple(sorted({g.communicator.hash for g, _, unknown in named if unknown is not None})),
        moved=any(_before(case, gap) not in (None, gap.launched) for gap in gaps),
        timeouts=report.timeouts,
        states=tuple(_states(communicators)),
        error=errors[0] if errors else "",
    )


def _states(communicators: list[RasCommunicator]) -> list[tuple[int, str]]:
    """The named ranks of communicators whose ranks differ in their state alone."""
    found = []
    for communicator in communicators:
        named = [r for r in communicator.ranks if not r.launched and not r.error]
        if "MISMATCH" in communicator.problems and not communicator.differences:
            found += [(r.rank, r.state) for r in named]
    return sorted(found)


def _names_faults(report: RasReport) -> bool:
    """Whether it names processes that are dead or silent, or ranks that are missing."""
    return bool(report.dead or report.silent) or any(c.missing for c in report.communicators)


def gaps_of(communicator: RasCommunicator) -> list[Gap]:
    """The ranks behind, by operation, where they are named."""
    by_op: dict[str, list[RasCounts]] = {}
    for row in communicator.differences:
        by_op.setdefault(row.op, []).append(row)
    found = [_gap(communicator, op, rows) for op, rows in by_op.items() if len(rows) > 1]
    return [gap for gap in found if gap.behind]


def _gap(communicator: RasCommunicator, op: str, rows: list[RasCounts]) -> Gap:
    least = min(rows, key=lambda r: r.launched)
    most = max(rows, key=lambda r: r.launched)
    few = 2 * least.number < (communicator.size or _LARGE)
    return Gap(
        communicator=communicator,
        op=op,
        launched=least.launched,
        behind=least.ranks,
        ahead=most.ranks,
        ahead_at=most.launched,
        few=few,
    )


def lasting(case: Case, gap: Gap) -> bool:
    """Whether the gap is more than what a job that moves shows: of more than one operation, the
    same in an earlier snapshot, or beside stacks or records.
    """
    before = _before(case, gap)
    if before is not None:
        return before == gap.launched
    return gap.ahead_at - gap.launched > 1 or bool(case.views)


def _before(case: Case, gap: Gap) -> int | None:
    """How many the ranks behind had launched in an earlier snapshot; None without one."""
    reports = latest(case)
    for report in reports[1:]:
        if reports[0].at_s - report.at_s < REPEATED_S:
            continue
        for communicator in report.communicators:
            if communicator.hash == gap.communicator.hash:
                return _launched(communicator, gap)
    return None


def _launched(communicator: RasCommunicator, gap: Gap) -> int | None:
    counts = {
        rank: row.launched
        for row in communicator.differences
        if row.op == gap.op
        for rank in row.ranks
    }
    counts.update({r.rank: r.launched[gap.op] for r in communicator.ranks if gap.op in r.launched})
    told = {counts[rank] for rank in gap.behind if rank in counts}
    return min(told) if told else None


def all_equal(case: Case) -> int:
    """The number of ranks where RAS reaches all of them and counts alike; 0 else."""
    reports = latest(case)
    if not reports or reports[0].dead or reports[0].silent or reports[0].timeouts:
        return 0
    communicators = reports[0].communicators
    if any(c.missing or c.differences or c.problems for c in communicators):
        return 0
    return max([reports[0].largest, *(c.size for c in communicators)])
