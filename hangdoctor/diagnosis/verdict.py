"""From a capture to a verdict: the passes in order, then the report on what they found.

Each pass reads the case and adds to the draft; a new one is a module with such a function and a
line in `PASSES`. `docs/diagnosis.md` says what each of them finds.
"""

from __future__ import annotations

from ..model.capture import JobCapture
from ..model.diagnosis import Diagnosis
from . import (
    calls,
    faults,
    file_locks,
    fusion,
    gpus,
    gradients,
    health,
    lifecycle,
    logs,
    operations,
    outsiders,
    parting,
    ras,
    straggling,
    waiting,
)
from .case import open_case
from .conclude import conclude
from .draft import Draft, Pass

PASSES: tuple[Pass, ...] = (
    # From processes and stacks: the first of the last four that finds anything ends the search.
    faults.run,
    file_locks.run,
    lifecycle.run_start,
    lifecycle.run_end,
    outsiders.run,
    waiting.run,
    # From operations, where ranks carry a black box or left dumps.
    operations.run,
    gradients.run,
    operations.leave_out_unasked,
    # Both together.
    fusion.run,
    parting.run,
    ras.run,
    gpus.run,
    # The job's own output, which may be all that is left.
    logs.run,
    health.run,
    straggling.run,
    calls.run,
)


def diagnose(capture: JobCapture) -> Diagnosis:
    """The diagnosis of a capture. Pure: the same capture gives the same diagnosis, to the byte."""
    case, draft = open_case(capture), Draft()
    for run in PASSES:
        run(case, draft)
        if draft.status in ("healthy", "unknown"):
            draft.findings = []
    return conclude(case, draft)
