"""Incidents in the index of a job's folder, as captures some time ago would have left them."""

from __future__ import annotations

import time
from pathlib import Path

from hangdoctor.model.capture import JobCapture
from hangdoctor.model.diagnosis import Cause, Diagnosis, Job, Where
from hangdoctor.model.layout import Layout
from hangdoctor.storage.incidents import Incidents

ADVICE = "On n2: py-spy dump --native --pid 105."
SAYS = "Rank 5 (n2, pid 105) never reached all_reduce #12; it is in load (data.py:4)."


def keep(folder: Path, ago_s: float, seq: int = 12) -> str:
    """An incident in the index, as a capture so long ago would have left it; its id."""
    taken = time.time() - ago_s
    cause = Cause(
        kind="not_entered",
        ranks=[5],
        nodes=["n2"],
        confidence=0.9,
        summary=SAYS,
        where=Where(op="all_reduce", seq=seq),
        advice=ADVICE,
    )
    job = Job(id="run-7", world_size=8, nodes=["n1", "n2"], layout=Layout(dp=2, pp=2, tp=2))
    told = Diagnosis(status="hang", job=job, summary=SAYS, causes=[cause])
    capture = JobCapture(job="run-7", world_size=8, taken=taken)
    return Incidents(folder / "job").save(capture, told, "", "no progress for 30 s").id
