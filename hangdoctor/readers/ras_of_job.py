"""NCCL's RAS of the job under diagnosis, and of no other job of the node.

The port belongs to the first process with NCCL on a node that took it. Where two jobs share a node, one of
them answers for itself alone, whoever is asked about.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import psutil

from ..errors import HangdoctorError
from ..model.capture import RankCapture
from ..model.ras_report import RasReport
from . import proc, ras_reader
from .ras_reader import PORT

VARIABLE = "NCCL_RAS_ADDR"
_HIGHEST_PORT = 65535


def ask(ranks: Sequence[RankCapture], timeout_s: float) -> tuple[RasReport | None, str]:
    """What RAS says of these ranks' job, None where it has none; and a note where another job answered."""
    pids = [pid for rank in ranks for pid in (rank.pid, *(child.pid for child in rank.children))]
    host, port = address(pids[:1])
    try:
        report = ras_reader.query(host, port, timeout_s)
    except HangdoctorError:
        return None, ""
    if is_about(report, _numbers(pids)):
        return report, ""
    return None, (
        f"NCCL's RAS at {host}:{port} answered for another job, and was not used: give each job of a "
        f"node its own {VARIABLE}"
    )


def address(pids: Iterable[int]) -> tuple[str, int]:
    """Where the job's environment puts RAS; NCCL's default where it says nothing."""
    for pid in pids:
        try:
            told = psutil.Process(pid).environ().get(VARIABLE, "")
        except (psutil.Error, OSError):
            continue
        host, _, number = told.rpartition(":")
        if number.isdigit() and 0 < int(number) <= _HIGHEST_PORT:
            return host.strip("[]") or "127.0.0.1", int(number)
    return "127.0.0.1", PORT


def is_about(report: RasReport, pids: set[int]) -> bool:
    """Whether a process of ours is among those that it names; True where it does not name them all."""
    named: set[int] = set()
    for communicator in report.communicators:
        members = [*communicator.ranks, *communicator.missing]
        if len(members) < communicator.size or not all(r.process.pid for r in members):
            return True
        named |= {r.process.pid for r in members}
    return not named or bool(named & pids)


def _numbers(pids: Iterable[int]) -> set[int]:
    """Process ids as the host has them, and as a container may have them."""
    found: set[int] = set()
    for pid in pids:
        inside = proc.status_fields(pid).get("NSpid", "").split()
        found |= {pid, *(int(word) for word in inside if word.isdigit())}
    return found
