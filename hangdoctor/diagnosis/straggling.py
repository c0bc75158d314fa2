"""The collector's own observation of a straggler, made over minutes, as a cause: a capture of one moment seldom shows it."""

from __future__ import annotations

from statistics import median

from ..model import Alternative, Cause, Evidence, Status
from .case import Case, nodes_of, short, who

_ADVICE = "Compare its node with the others: clocks, thermals, other processes, storage; or give it less work."


def judge(case: Case, status: Status, causes: list[Cause]) -> tuple[Status, list[Cause]]:
    """Status and causes with it; a hang that the capture shows is what counts."""
    capture = case.capture
    if capture.slowest < 0 or status == "hang" or any(c.kind == "slow" and c.ranks == [capture.slowest] for c in causes):
        return status, causes
    if not set(capture.waited) - {capture.slowest}:
        return status, causes  # nothing to compare it with
    return "slow", [_cause(case)]


def _cause(case: Case) -> Cause:
    capture, rank = case.capture, case.capture.slowest
    views = [v for v in case.views if v.rank == rank]
    others = [share for r, share in capture.waited.items() if r != rank]
    own = capture.waited.get(rank, 0)
    told = f"over {capture.waited_s:.0f} s it waited {own}% of its time in operations, the others {min(others)}% or more (median {median(others):.0f}%)"
    name = who(views) if views else f"Rank {rank}"
    cause = Cause(
        "slow", [rank], nodes_of(views), 0.85, f"The job goes on, but {name} comes last and makes the others wait: {told}."
    )
    cause.evidence = [
        Evidence("ops", [rank], f"waited {own}% of its time"),
        Evidence("ops", sorted(r for r in capture.waited if r != rank), f"waited {min(others)} to {max(others)}% of theirs"),
    ]
    if views and views[0].place.frame is not None:
        cause.where.frame = str(views[0].place.frame)
        cause.evidence.append(
            Evidence("stack", [rank], f"at the moment of the capture it was at {short(views[0].place.frame)}")
        )
    cause.alternatives = [
        Alternative("in_communication", sorted(capture.waited), "a slow network makes all ranks wait, this one too")
    ]
    cause.advice = _ADVICE
    return cause
