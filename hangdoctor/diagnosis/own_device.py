"""Pass: a job of one rank that waits for its own GPU, and does not get on.

No other rank can hold it up: what runs on the device does not end, or takes longer than it was watched.
"""

from __future__ import annotations

from .case import Case, finding_on, stack_clue
from .confidence import Ground, sure
from .device_waits import has_not_got_on
from .draft import Draft
from .findings import Against, Finding, WaitsForDevice, Why
from .own_samples import seen_threads
from .view import RankView


def run(case: Case, draft: Draft) -> None:
    """Name it, where nothing else is wrong."""
    if draft.findings or draft.status is not None or case.capture.over or case.unseen:
        return
    if len(case.views) != 1:
        return
    [view] = case.views
    if _is_alone(view) and view.waits and view.place.kind == "device":
        found = _finding(case, view)
        draft.findings = [found] if found is not None else []


def _is_alone(view: RankView) -> bool:
    """Whether its environment says that the job has no other rank."""
    return view.capture.world_size == 1 and not view.stopped and not view.stack_error


def _finding(case: Case, view: RankView) -> Finding | None:
    seen = seen_threads(view)
    threads = [thread for _, thread in seen]
    if view.motion != "still" and not has_not_got_on(threads):
        return None
    seconds = seen[-1][0].at_s - seen[0][0].at_s
    story = WaitsForDevice(seconds)
    finding = finding_on(case, "device_wait", [view], story, confidence=sure(Ground.OWN_DEVICE))
    finding.clues = [stack_clue([view])]
    finding.against = [Against("slow", (view.rank,), Why.MAY_BE_SLOW)]
    return finding
