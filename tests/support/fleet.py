"""Folders of several jobs with an incident in each, as their collectors would have left them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from hangdoctor.model.capture import JobCapture
from hangdoctor.model.diagnosis import (
    Cause,
    Diagnosis,
    Job,
    StackFrame,
    StackGroup,
    Wait,
    WaitOn,
    Where,
)
from hangdoctor.storage.incidents import Incidents

FRAMES = [StackFrame("main", "/home/u/train.py", 9), StackFrame("load_batch", "/home/u/data.py", 4)]


class One(Struct):
    """One incident."""

    place: str
    job: str
    at: float
    cause: Cause


def not_entered(node: str) -> Cause:
    """Rank 5, on this node."""
    return Cause(
        kind="not_entered",
        ranks=[5],
        nodes=[node],
        confidence=0.9,
        summary=f"Rank 5 ({node}, pid 105) never reached all_reduce #12; it is in load_batch (data.py:4).",
        where=Where(op="all_reduce", seq=12, group="TP", frame="load_batch (data.py:4)"),
        advice=f"On {node}: py-spy dump --native --pid 105.",
    )


_STOPPED = Cause("stopped", [50], ["n7"], 0.95, "Rank 50 (n7, pid 150) is stopped (SIGSTOP).")
FLEET = (
    One("gpt-1", "run-gpt", 1_700_000_000.0, not_entered("n2")),
    One("gpt-2", "run-gpt", 1_700_100_000.0, not_entered("n3")),
    One("vision-3", "run-vision", 1_700_200_000.0, _STOPPED),
)


def keep_fleet(root: Path, fleet: Sequence[One] = FLEET) -> Path:
    """Save these incidents, each in the folder of its job below `root`."""
    for one in fleet:
        told = Diagnosis(
            "hang", Job(one.job, 64, ["n2", "n3", "n7"]), one.cause.summary, [one.cause]
        )
        if one.cause.where.op:
            told.waits = [Wait([0, 1], WaitOn("TP", "all_reduce", 12), [5])]
            told.stacks = [StackGroup([5], "MainThread", FRAMES)]
        capture = JobCapture(one.job, world_size=64, taken=one.at)
        Incidents(root / one.place).save(capture, told, "report", "stall: no progress for 30 s")
    return root
