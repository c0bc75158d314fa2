"""By which library a job communicates: without NCCL, no advice speaks of NCCL's settings or of its
recorder.
"""

from __future__ import annotations

from ..model.log_facts import (
    HYDRA,
    MPI_ABORT,
    AnyFact,
    BarrierMissed,
    Counted,
    Desync,
    Ended,
    GlooTimeout,
    JobLogs,
    PeerClosed,
    TimedOut,
    Told,
)
from ..text.late import late
from .case import Case

_OTHER = "another"
_OF_MPI = ("mpirun", HYDRA, MPI_ABORT, "mpt", "gasnet")  # who says how a process ended
_OTHERS = late(r"\b(?:HCCL|hccl\w*|[Hh]orovod\w*|jax\w*|MPI_\w+)\b")


def is_gloo_alone(case: Case) -> bool:
    """True where boxes or the log show gloo, and nothing shows NCCL, its recorder or a GPU."""
    captures = [view.capture for view in case.views]
    records = [ops for c in captures for ops in (c.ops, c.recorded) if ops is not None]
    nccl = any(ops.runs_ahead or ops.source == "nccl" for ops in records)
    gpus = any(c.gpu for c in captures) or any(node.ras for node in case.capture.nodes)
    logs = case.capture.logs
    if nccl or gpus or (logs is not None and _names(logs, "nccl")):
        return False
    # A box without that flag is of ranks that wait in the call itself.
    by_boxes = any(ops.source == "blackbox" and ops.has_communicated() for ops in records)
    return by_boxes or (logs is not None and _names(logs, "gloo"))


def has_no_recorder(case: Case) -> bool:
    """True where no Flight Recorder can be set for the next run: gloo alone, or another library than
    NCCL in the log.
    """
    logs = case.capture.logs
    if is_gloo_alone(case):
        return True
    if logs is None or _names(logs, "nccl"):
        return False
    return _names(logs, _OTHER)


def _names(logs: JobLogs, library: str) -> bool:
    return any(_library_of(fact) == library for fact in logs.facts)


def _library_of(fact: AnyFact) -> str:
    """The library that a line is of, "" where it does not show."""
    hccl = isinstance(fact, TimedOut) and fact.group_size >= 0  # only its lines tell the size
    if hccl or _OTHERS.search(fact.says) or _is_by_mpi(fact):
        return _OTHER
    if isinstance(fact, TimedOut | Counted | Told):
        return "nccl"  # of its watchdog
    if isinstance(fact, GlooTimeout | BarrierMissed):
        return "gloo"
    if isinstance(fact, PeerClosed) and fact.library:
        return fact.library
    words = fact.says.lower()
    if "nccl" in words or "cuda" in words:
        return "nccl"
    return "gloo" if "gloo" in words else ""


def _is_by_mpi(fact: AnyFact) -> bool:
    """Whether MPI's launcher, or Horovod, says it."""
    if isinstance(fact, Desync):
        return fact.by == "horovod"
    return isinstance(fact, Ended) and fact.by in _OF_MPI
