"""Pass: native stacks of processes that end: by their own call of MPI_Abort or abort(), or in a crash of which
the job's log tells.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.frame import Frame
from ..model.log_ends import BY_ITSELF
from ..stacks import aborts
from .case import Case
from .confidence import Ground, sure
from .draft import Draft
from .findings import Clue, EndedItself, Finding, UnnamedAt
from .findings.log_stories import FailedFirst, LoggedDeath
from .view import RankView

_FRAMES = 4  # of a stack, in evidence


def run(case: Case, draft: Draft) -> None:
    """Of stacks whose ranks are known."""
    if not case.capture.native:
        return
    if case.capture.logs is not None:
        if draft.findings:
            add_stack(case, draft.findings[0])
        return
    ended = ended_itself(case)
    if ended is not None:
        draft.findings, draft.status = [ended], "failed"


def ended_itself(case: Case) -> Finding | None:
    """The processes whose stacks are of their own call of MPI_Abort or abort(); None where they made it
    in several places, or it is not the program's.
    """
    ends = [(view, end) for view in case.gone if (end := aborts.own_end(_main(view))) is not None]
    frames = {str(end.frame) for _, end in ends}
    if len(frames) != 1 or len(ends) != len(case.gone):
        return None
    view, end = ends[0]
    if end.frame is None:
        return None
    names = tuple(_name(case, view) for view, _ in ends)
    values = tuple(end.frame.values.items()) if len(ends) == 1 else ()
    by_mpi = end.how == aborts.MPI_ABORT
    inner = tuple(_main(view)[: end.place + 1 + _FRAMES])
    finding = Finding(
        kind="error",
        ranks=[] if case.capture.names else sorted(view.rank for view, _ in ends),
        story=EndedItself(names, end.frame, by_mpi, values),
        confidence=sure(Ground.OWN_END),
        frame=end.frame,
        clues=[Clue("stack", (), UnnamedAt(names, inner))],
    )
    finding.where.frame = str(end.frame)
    return finding


def add_stack(case: Case, crash: Finding) -> None:
    """Where the process stood that the log says has crashed, by the stack that was given beside it."""
    view = _crashed(case, crash) if _is_crash(crash) else None
    if view is None:
        return
    frames = _main(view)
    end = aborts.own_end(frames)
    crash.crashed_in = end.frame if end is not None else aborts.crashed_in(frames)
    if crash.crashed_in is None:
        return
    crash.where.frame = crash.where.frame or str(crash.crashed_in)
    begin = next((at for at, f in enumerate(frames) if f is crash.crashed_in), 0)
    shown = UnnamedAt((_name(case, view),), tuple(frames[begin : begin + _FRAMES]))
    crash.clues.append(Clue("stack", (), shown))


def _is_crash(found: Finding) -> bool:
    if isinstance(found.story, LoggedDeath):
        return found.story.aborted or (found.story.end.code or 0) in BY_ITSELF
    return found.kind == "dead" and isinstance(found.story, FailedFirst) and found.frame is None


def _crashed(case: Case, crash: Finding) -> RankView | None:
    """The one process whose stack shows a crash; else the only one that is there, where it does not wait."""
    story, named = crash.story, not case.capture.names
    code = story.end.code or 0 if isinstance(story, LoggedDeath) else 0
    stacks = [view for view in case.views if _main(view)]
    if named:
        stacks = [view for view in stacks if view.rank in crash.ranks]
    shown = [v for v in stacks if v.gone or _has_handler(v)]
    if not shown and len(stacks) == 1 and not stacks[0].place.communicates:
        shown = stacks
    shown = [v for v in shown if v.capture.exit_code in (None, code) or not code]
    return shown[0] if len(shown) == 1 else None


def _has_handler(view: RankView) -> bool:
    return any(frame.name == aborts.SIGNAL_HANDLER for frame in _main(view))


def _main(view: RankView) -> Sequence[Frame]:
    """The frames of its main thread, innermost first."""
    threads = view.capture.samples[-1].threads if view.capture.samples else []
    main = [thread for thread in threads if thread.name == "MainThread"] or threads[:1]
    return main[0].frames if main else ()


def _name(case: Case, view: RankView) -> str:
    return case.capture.names[view.rank] if case.capture.names else f"rank {view.rank}"
