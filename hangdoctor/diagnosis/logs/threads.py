"""Exceptions that ended a thread of a rank: the process goes on without it, and may hang for that.

The log shows one as the first failure only where no progress follows; else as something that the job
survived.
"""

from __future__ import annotations

from ...model.log_facts import (
    AnyFact,
    Cancelled,
    Ended,
    Finished,
    KilledByLauncher,
    PythonError,
    Signalled,
)
from ..draft import Draft
from ..findings import Clue, Finding
from ..findings.log_remaining import WentOnAfter
from ..findings.log_stories import Quote
from .scene import Scene

_BESIDE = frozenset({"not_entered", "busy", "data_wait"})  # of ranks that are elsewhere


def of_thread(fact: AnyFact) -> bool:
    """Whether it is an exception that ended a thread, and not its process."""
    return isinstance(fact, PythonError) and bool(fact.thread)


def at_end(scene: Scene, position: int) -> bool:
    """Whether a process had ended before that place in the order, or was to: its threads then fail in
    consequence.
    """
    ends = scene.positioned(Signalled, Cancelled, KilledByLauncher, Ended)
    victims = {id(fact) for fact in scene.victims()}
    earlier = scene.facts[:position]
    return any(at < position for at, _ in ends) or any(id(f) in victims for f in earlier)


def may_have_hung(scene: Scene, position: int) -> bool:
    """Whether a thread that ended at that place may have stopped the job: it did not end cleanly, nor
    was at its end.
    """
    return not at_end(scene, position) and not scene.of(Finished)


def gone_on_after(error: PythonError) -> bool:
    """Whether it is an error of a rank after which the job made progress."""
    return error.survived and error.role == "cause" and not error.logged and bool(error.error)


def gone_on(scene: Scene) -> WentOnAfter | None:
    """The last error that the job survived, one that ended a thread first of all; None of none."""
    errors = [error for error in scene.of(PythonError) if gone_on_after(error)]
    chosen = [error for error in errors if error.thread] or errors
    if not chosen:
        return None
    last = chosen[-1]
    ranks = (last.rank,) if last.rank >= 0 else ()
    return WentOnAfter(_quote(scene, last), ranks, last.thread)


def add_ended_threads(draft: Draft, scene: Scene) -> None:
    """Beside other evidence that places one rank elsewhere: the exception that ended a thread, where
    it may be of that rank.
    """
    if len(draft.findings) != 1 or not _one_elsewhere(draft.findings[0]):
        return
    [finding] = draft.findings
    for position, error in scene.positioned(PythonError):
        assert isinstance(error, PythonError)
        if not error.thread or error.role != "cause" or at_end(scene, position):
            continue
        if error.rank in (-1, *finding.ranks):
            ranks = (error.rank,) if error.rank >= 0 else tuple(finding.ranks)
            quote = _quote(scene, error)
            others = [c for c in finding.clues if not _same_line(c, quote)]
            finding.clues = [Clue("log", ranks, quote), *others]


def _same_line(clue: Clue, quote: Quote) -> bool:
    fact = clue.fact
    return isinstance(fact, Quote) and (fact.file, fact.line) == (quote.file, quote.line)


def _one_elsewhere(finding: Finding) -> bool:
    return len(finding.ranks) == 1 and finding.kind in _BESIDE


def worded(error: PythonError) -> str:
    """``OSError: no space``; of a thread with its name before it."""
    says = f"{error.error}: {error.message}" if error.message else error.error
    return f"thread '{error.thread}' ended: {says}" if error.thread else says


def _quote(scene: Scene, error: PythonError) -> Quote:
    return scene.quote(error, f"{error.error}: {error.message}".removesuffix(": "))
