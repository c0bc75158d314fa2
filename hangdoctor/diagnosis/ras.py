"""Pass: what NCCL's RAS says, where neither operations nor stacks have named anybody.

RAS counts operations per communicator and knows dead peers, but its rank numbers are the communicator's own:
they are the job's where the communicator spans the job.
"""

from __future__ import annotations

from ..model import Alternative, Cause, Evidence, Where
from ..ranges import format_ranks
from ..ras_model import RasCommunicator, RasCounts, RasReport
from .case import Case


def find(case: Case) -> list[Cause]:
    """Causes that RAS tells of, for the largest communicator that tells anything."""
    causes: list[Cause] = []
    for report in (n.ras for n in case.capture.nodes if n.ras is not None):
        for communicator in sorted(report.communicators, key=lambda c: -c.size):
            found = _of_communicator(case, report, communicator)
            if found:
                causes += found
                break
    return causes


def _of_communicator(case: Case, report: RasReport, communicator: RasCommunicator) -> list[Cause]:
    ours = communicator.size in (0, case.world_size) or not case.views
    gone = [r for r in communicator.missing if r.state in ("missing", "dead", "unresponsive")]
    if gone:
        return [
            _gone(communicator, sorted(r.rank for r in gone), sorted({r.process.host for r in gone if r.process.host}), ours)
        ]
    return [_behind(communicator, d, ours) for d in _behind_of(communicator)]


def _behind_of(communicator: RasCommunicator) -> list[RasCounts]:
    """The ranks that have launched fewest of an operation, where they are the few and are named."""
    by_op: dict[str, list[RasCounts]] = {}
    for row in communicator.differences:
        by_op.setdefault(row.op, []).append(row)
    fewest = [min(rows, key=lambda r: r.launched) for rows in by_op.values() if len(rows) > 1]
    return [row for row in fewest if row.ranks and 2 * row.number < (communicator.size or 1 << 30)]


def _which(ours: bool, communicator: RasCommunicator) -> str:
    return "" if ours else f" of communicator {communicator.hash} (its own numbering)"


def _gone(communicator: RasCommunicator, ranks: list[int], hosts: list[str], ours: bool) -> Cause:
    many = "s" if len(ranks) > 1 else ""
    where = f" on {', '.join(hosts)}" if hosts else ""
    says = f"NCCL's RAS has lost rank{many} {format_ranks(ranks)}{_which(ours, communicator)}{where}"
    return Cause(
        "unreachable", ranks, hosts, 0.75 if ours else 0.5, says + "; its peers wait for it in their communicator.",
        Where(group=communicator.hash), [Evidence("ras", ranks, says)], [],
        "Look whether the process and its node live: ssh to it, dmesg for Xid and OOM, then restart from the last checkpoint.",
    )  # fmt: skip


def _behind(communicator: RasCommunicator, row: RasCounts, ours: bool) -> Cause:
    op = row.op or "operations"
    says = f"rank{'s' if len(row.ranks) > 1 else ''} {format_ranks(row.ranks)}{_which(ours, communicator)} launched {row.launched} {op}, fewer than the others"
    return Cause(
        "not_entered", row.ranks, [], 0.7 if ours else 0.45, says[0].upper() + says[1:] + ": it has not come to the operation that they wait in.",
        Where(group=communicator.hash, op=row.op or None), [Evidence("ras", row.ranks, says)],
        [Alternative("in_communication", row.ranks, "not all members have launched equally many operations")],
        "Capture the stacks of these ranks: hangdoctor dump tells what they do instead.",
    )  # fmt: skip
