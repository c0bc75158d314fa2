"""A bundle and a diagnosis with a hostile text in every field that comes from a job."""

from __future__ import annotations

from pathlib import Path

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import (
    Frame,
    JobCapture,
    NodeCapture,
    ProcessSample,
    RankCapture,
    ThreadSample,
)
from hangdoctor.model.diagnosis import (
    Alternative,
    CallsOf,
    CallsParting,
    Cause,
    Diagnosis,
    Evidence,
    Job,
    Missing,
    RankLine,
    StackFrame,
    StackGroup,
    Wait,
    WaitOn,
)
from hangdoctor.model.operations import Group, Operation, RankOps
from hangdoctor.storage import bundle

EVIL = "</script><svg onload=window.pwned=1>\"'><!--\u202e{{1}}" + "n" * 10_000
SHOWN = EVIL.replace("\u202e", "\\u{202e}")


def everywhere(folder: Path) -> tuple[JobCapture, Diagnosis, Path]:
    """(capture, diagnosis, the bundle's folder) of two ranks, one to blame."""
    threads = [ThreadSample(7, EVIL, "S", EVIL, frames=[Frame(EVIL, EVIL, 1, code=EVIL)])]
    ops = RankOps(
        0,
        2,
        groups=[Group(EVIL, [0, 1], EVIL)],
        operations=[Operation(EVIL, 1, EVIL, site=EVIL, shapes=EVIL)],
        phase=EVIL,
    )
    rank = RankCapture(
        pid=7, rank=0, node=EVIL, samples=[ProcessSample(0.1, "S", threads=threads)], ops=ops
    )
    capture = JobCapture(
        EVIL, [NodeCapture(EVIL, ranks=[rank], raw={"7.0.json": EVIL})], world_size=2
    )
    kept = bundle.save(folder / "kept", capture, diagnose(capture), "", ["hangdoctor", EVIL])
    cause = Cause(
        "busy", [0], [EVIL], 0.5, EVIL, evidence=[Evidence("log", [0], EVIL)], advice=EVIL
    )
    cause.alternatives = [Alternative("order", [1], EVIL)]
    cause.where.frame = cause.where.op = cause.where.group = cause.where.phase = EVIL
    diagnosis = Diagnosis(
        status="hang",
        job=Job(EVIL, 2, [EVIL]),
        summary=EVIL,
        causes=[cause, cause],
        waits=[Wait([1], WaitOn(EVIL, EVIL, 1), [0])],
        stacks=[StackGroup([0], EVIL, [StackFrame(EVIL, EVIL, 1)])],
        missing=[Missing([1], EVIL, "node", EVIL)],
        ranks=[RankLine(rank=0, node=EVIL, pid=1, gpu=EVIL, local_rank=0, state=EVIL, place=EVIL)],
        notes=[EVIL],
    )
    diagnosis.calls = CallsParting(
        EVIL, CallsOf(0, [EVIL] * 3, [EVIL] * 12, 3.0), CallsOf(1, [EVIL]), 7, EVIL
    )
    return capture, diagnosis, kept
