"""Pass: the job's output beside stacks of which no rank is known: what it names counts for more."""

from __future__ import annotations

import signal

from ..stacks import aborts
from . import logs
from .case import Case
from .draft import Draft
from .findings import Clue, Finding, UnnamedAt
from .findings.log_stories import FailedFirst, LoggedDeath
from .view import RankView

_FRAMES = 4  # of a stack, in evidence
# Signals that nothing but the process itself brings about
_BY_ITSELF = tuple(
    -number
    for number in (signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV)
)


def run(case: Case, draft: Draft) -> None:
    """What the logs name; else what the stacks showed, with the chain of the logs."""
    own = Draft()
    logs.run(case, own)
    draft.chain, draft.notes = own.chain, draft.notes + own.notes
    if own.findings:
        draft.findings, draft.status, draft.waits = own.findings, own.status, own.waits
        _add_stack(case, own.findings[0])


def _add_stack(case: Case, crash: Finding) -> None:
    """Where the process stood that the log says has crashed, by the stack that was given beside it."""
    view = _crashed(case) if _is_crash(crash) else None
    if view is None:
        return
    frames = view.capture.samples[-1].threads[0].frames
    end = aborts.own_end(frames)
    crash.crashed_in = end.frame if end is not None else aborts.crashed_in(frames)
    if crash.crashed_in is None:
        return
    crash.where.frame = crash.where.frame or str(crash.crashed_in)
    names = (case.capture.names[view.rank],)
    begin = next((at for at, f in enumerate(frames) if f is crash.crashed_in), 0)
    crash.clues.append(Clue("stack", (), UnnamedAt(names, tuple(frames[begin : begin + _FRAMES]))))


def _is_crash(found: Finding) -> bool:
    if isinstance(found.story, LoggedDeath):
        return found.story.aborted or (found.story.end.code or 0) in _BY_ITSELF
    return found.kind == "dead" and isinstance(found.story, FailedFirst) and found.frame is None


def _crashed(case: Case) -> RankView | None:
    """The one process whose stack shows a crash; else the only one that is there, where it does not wait."""
    stacks = [v for v in case.views if v.capture.samples and v.capture.samples[-1].threads]
    shown = [v for v in stacks if v.gone or _has_handler(v)]
    if not shown and len(stacks) == 1 and not stacks[0].place.communicates:
        shown = stacks
    return shown[0] if len(shown) == 1 else None


def _has_handler(view: RankView) -> bool:
    frames = view.capture.samples[-1].threads[0].frames
    return any(frame.name == aborts.SIGNAL_HANDLER for frame in frames)
