"""Few ranks that had to be ended by a signal, long after all others had ended with exit code 0."""

from __future__ import annotations

from ...model.log_facts import Ended, Finished, PythonError
from ...model.pauses import is_long, usual_pause
from ..case import Case, finding_on, frame_of, stack_clue
from ..confidence import Ground, sure
from ..findings import Clue, EndedCleanly, Op, StillIn
from ..view import RankView
from .candidate import First
from .outside import signalled
from .scene import Scene

_LONG_S = 5.0  # between the ends of ranks that all end by themselves


def still_running(case: Case, scene: Scene) -> First | None:
    """Those ranks; None where they waited in an operation, or others may have waited for them."""
    clean = {f.rank: f.at for f in scene.by_boxes() if isinstance(f, Finished) and f.at > 0}
    late = sorted(set(signalled(scene)) - set(clean))
    known = {*late, *clean} == set(scene.everyone) and scene.whole
    if not late or not known or 2 * len(late) > len(scene.everyone):
        return None
    views = [v for v in case.views if v.rank in late]
    if len(views) < len(late) or any(_in_operation(v) for v in views):
        return None
    ends = [f for f in scene.by_boxes() if isinstance(f, Ended | PythonError) and f.rank in late]
    gap = min(f.at for f in ends) - max(clean.values())
    every = [v.capture.ops for v in case.views if v.capture.ops is not None]
    if gap < _LONG_S or not is_long(gap, usual_pause(every, max(clean.values()))):
        return None
    frame = frame_of(views[0])
    story = StillIn(Op("", frame=frame), ended=tuple(sorted(clean)))
    finding = finding_on(case, "end_stall", views, story, confidence=sure(Ground.STILL_LATER))
    finding.clues = [stack_clue(views)] if frame is not None else []
    finding.clues.append(Clue("proc", tuple(sorted(clean)), EndedCleanly()))
    return First(finding, [*ends], True)


def _in_operation(view: RankView) -> bool:
    ops = view.capture.ops
    return ops is not None and any(not o.asynchronous for o in ops.unfinished())
