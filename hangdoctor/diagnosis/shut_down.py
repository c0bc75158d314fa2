"""Ranks whose program is over and whose process is not: Python has shut down its interpreter, and what
runs then waits, as MPI_Finalize does for all ranks.

An exception or the end of the program came before. Others that wait in a collective wait for a rank
that will not come.
"""

from __future__ import annotations

from . import findings as f
from .case import Case, finding_on, op_of, ranks_of
from .confidence import Ground, Limit, sure
from .findings import Against, Clue, Finding, Why
from .view import RankView

_NO_INTERPRETER = "find a python interpreter"  # py-spy's words, where nothing else is known
_STARTS_S = 30.0  # a younger process may have no interpreter yet


def _has_shut_down(case: Case, view: RankView) -> bool:
    """Whether its interpreter was shut down, or must have been: py-spy, which reads the other ranks,
    finds none in a process that is long past its start.
    """
    samples = view.capture.samples
    if not samples or view.path or view.unread:
        return False
    if all(s.shut_down for s in samples):
        return True
    if not all(s.shut_down or _NO_INTERPRETER in s.stack_error for s in samples):
        return False
    started, taken = view.capture.started, case.capture.taken
    return not (started and taken - started < _STARTS_S)


def find(case: Case) -> list[Finding]:
    """One finding on all of them, where other ranks wait."""
    over = [v for v in case.alive if not v.stopped and _has_shut_down(case, v)]
    held = case.held_up(ranks_of(over)) if over else []
    if not held:
        return []
    seen = all(_is_seen(view) for view in over)
    if not seen and held[0].place.kind == "start":
        return []  # they may be starting
    doubts = [Limit.ONE_SAMPLE] if any(len(v.capture.samples) < 2 for v in over) else []
    leaving = held[0].place.kind == "end"
    if leaving:
        doubts.append(Limit.AHEAD)
    # Teardown may be behind them: then they did not miss it.
    story = f.ShutDown(None if leaving else op_of(held))
    ground = Ground.SHUT_DOWN if seen else Ground.NO_INTERPRETER
    finding = finding_on(case, "end_stall", over, story, confidence=sure(ground, *doubts))
    finding.clues = [
        Clue("stack", ranks_of(over), f.NoInterpreter(seen)),
        Clue("stack", ranks_of(held), f.WaitsIn()),
    ]
    finding.against = [Against("in_communication", ranks_of(held), Why.CULPRIT_IS_OUTSIDE)]
    return [finding]


def _is_seen(view: RankView) -> bool:
    return all(sample.shut_down for sample in view.capture.samples)
