"""From a capture to a verdict: the passes in order, then the report on what they found.

Each pass reads the case and adds to the draft; a new one is a module with such a function and a
line in `PASSES`. `docs/diagnosis.md` says what each of them finds.
"""

from __future__ import annotations

import traceback

from ..model.capture import Frame, JobCapture
from ..model.diagnosis import Diagnosis
from . import (
    amounts_apart,
    arrivals,
    at_work_alone,
    by_scheduler,
    called_alone,
    called_from,
    calls,
    compiling,
    ended_meanwhile,
    faults,
    file_locks,
    fusion,
    gpus,
    gradients,
    health,
    held_by_work,
    interrupted_calls,
    last_places,
    later_round,
    left_locks,
    left_loops,
    left_open,
    lifecycle,
    loading,
    operations,
    other_records,
    other_texts,
    outsiders,
    own_device,
    own_ends,
    parting,
    ras_culprits,
    rendezvous,
    start_up,
    straggling,
    unnamed,
    waited_for,
    waiting,
)
from .case import Case, open_case
from .conclude import conclude
from .draft import Draft, Pass
from .ops.evidence import Note, Remark

_SHOWN = 120  # characters of an error of our own


def _of_logs(case: Case, draft: Draft) -> None:
    """What logs and ends tell (`logs`): seventy modules, imported for a job that has one of the two."""
    if case.capture.logs is None and not case.capture.over:
        return
    from . import logs

    logs.run(case, draft)


PASSES: tuple[Pass, ...] = (
    # From processes and stacks: the first of the last five that finds anything ends the search.
    faults.run,
    file_locks.run,
    left_locks.run,
    rendezvous.run,
    start_up.run,
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
    last_places.run,
    at_work_alone.run,
    other_records.run,
    parting.run,
    amounts_apart.run,
    called_alone.run,
    later_round.run,
    ras_culprits.run,
    gpus.run,
    # The job's own output, which may be all that is left.
    _of_logs,
    own_ends.run,
    own_device.run,
    called_from.run,
    left_loops.run,
    interrupted_calls.run,
    # And its scheduler, which knows why nodes say nothing.
    by_scheduler.run,
    ended_meanwhile.run,
    health.run,
    other_texts.run,
    compiling.run,
    arrivals.run,
    held_by_work.run,
    waited_for.run,
    straggling.run,
    loading.run,
    calls.run,
    left_open.run,
)


def diagnose(capture: JobCapture, *, lenient: bool = False) -> Diagnosis:
    """The diagnosis of a capture. Pure: the same capture gives the same diagnosis, to the byte.

    `lenient`: a pass that fails by an error of its own is left out, and a note says so: who asks at
    night needs what the others found. Such a job is never healthy.
    """
    case, draft = open_case(capture), Draft()
    for run in _of_unnamed(capture) if capture.names else PASSES:
        try:
            run(case, draft)
        except Exception as error:
            if not lenient:
                raise
            draft.notes.append(_left_out(error))
        if draft.status in ("healthy", "unknown"):
            draft.findings = []
    if draft.status in ("healthy", None) and any(
        n.remark is Remark.PASS_FAILED for n in draft.notes
    ):
        draft.status, draft.findings = "unknown", []
    return conclude(case, draft)


def load_all() -> None:
    """Import the passes that are else imported with the first job that needs them: for a process that is
    to diagnose when the disk with its modules may no longer answer.
    """
    from . import beside_unnamed, logs  # noqa: F401
    from .logs import ended_short  # noqa: F401
    from .ops import engine, first_disagreement  # noqa: F401


def _of_unnamed(capture: JobCapture) -> tuple[Pass, ...]:
    """Of stacks without ranks, with what the job's own output says beside them."""
    if capture.logs is None:
        return (unnamed.run,)
    from . import beside_unnamed

    return (unnamed.run, beside_unnamed.run)


def _left_out(error: Exception) -> Note:
    """The error and the line where it was raised."""
    at = traceback.extract_tb(error.__traceback__)[-1]
    text = f"{type(error).__name__}: {error}"[:_SHOWN]
    return Note(Remark.PASS_FAILED, op=text, frame=Frame(at.name, at.filename, at.lineno or 0))
