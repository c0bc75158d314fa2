"""Which of the job's ranks the ranks of a communicator are, as far as RAS says it.

A communicator numbers its members from 0. Those are the job's numbers only where it spans the job;
the ranks of a smaller one are found by their processes, where a communicator that spans the job
names them too. Else only their processes are known.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..model.ras_report import RasCommunicator, RasProcess, RasReport
from .case import Case
from .findings import OwnNumbers


def spans_job(case: Case, report: RasReport, communicator: RasCommunicator) -> bool:
    """Whether a communicator has all ranks of the job; one of unknown size does if it is alone."""
    if not communicator.size:
        return len(report.communicators) == 1
    sizes = [c.size for c in report.communicators]
    return communicator.size == max([case.world_size, report.gpus, report.largest, *sizes])


def in_job(
    case: Case, report: RasReport, communicator: RasCommunicator, numbers: Iterable[int]
) -> tuple[list[int], OwnNumbers | None]:
    """(the job's ranks, None), or ([], what is known of these members instead)."""
    ranks = sorted(set(numbers))
    if spans_job(case, report, communicator):
        return ranks, None
    processes = processes_of(communicator, ranks)
    known = _known(case, report)
    if len(processes) == len(ranks) and known.keys() >= set(processes):
        return sorted(known[process] for process in processes), None
    return [], OwnNumbers(communicator.hash, tuple(ranks), told(processes))


def processes_of(communicator: RasCommunicator, ranks: Iterable[int]) -> list[RasProcess]:
    """The processes of these members, those that are named."""
    members = {r.rank: r.process for r in [*communicator.ranks, *communicator.missing]}
    named = [members[rank] for rank in ranks if rank in members]
    return [process for process in named if process.pid]


def told(processes: Iterable[RasProcess]) -> tuple[tuple[str, int, str], ...]:
    """(host, process id, GPU) of each."""
    return tuple((p.host, p.pid, p.gpu) for p in processes)


def _known(case: Case, report: RasReport) -> dict[RasProcess, int]:
    whole = [c for c in report.communicators if spans_job(case, report, c)]
    members = [r for c in whole for r in [*c.ranks, *c.missing]]
    return {r.process: r.rank for r in members if r.process.pid}
