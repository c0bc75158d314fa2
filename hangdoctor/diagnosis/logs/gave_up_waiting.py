"""Ranks whose own guards gave up waiting, after a process had been killed: that one was what they waited
for.

A program that waits for a file or an answer of another rank raises an error of its own when that does not
come: by its words it is no failure of the ranks that raise it, all at one line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...model.log_facts import AnyFact, Ended, PythonError
from ...text.late import late
from .candidate import First
from .scene import Scene

_WAITED = late(
    r"time[- ]?d?[- ]?out|gave up|no (?:answer|reply|response|news|sign)|(?:still|are|is|was|were|did|has|have) not\b"
    r".{0,120}\b(?:after|in|within|for) \d|\bno \w.{0,120}\b(?:after|in|within|for) \d|\b(?:waited|waiting)\b",
    re.I | re.S,
)
_FATAL = frozenset({-4, -7, -8, -9, -11, 132, 135, 136, 137, 139})


def for_the_dead(scene: Scene, error: First, death: First) -> bool:
    """Whether the ranks of an error gave up waiting alike, after one process had been killed that is none
    of them; its rank is set where it is the only one that is missing below the highest.
    """
    raised = [f for f in error.facts if isinstance(f, PythonError)]
    ends = [f for f in death.facts if isinstance(f, Ended)]
    raisers = {f.rank for f in raised}
    if len(raisers) < 2 or -1 in raisers or len(raised) != len(error.facts) or len(ends) != 1:
        return False
    [end] = ends
    if end.code not in _FATAL or end.rank in raisers or not _alike(raised):
        return False
    if not all(_came_later(fact, end) for fact in raised):
        return False
    missing = set(range(max(raisers) + 1)) - raisers
    if end.rank < 0 and len(missing) == 1:
        [end.rank] = missing
        death.finding.ranks = [end.rank]
        death.finding.nodes = scene.places(death.finding.ranks, ends)
    return True


def _alike(raised: Sequence[PythonError]) -> bool:
    places = {(f.error, f.frame.name, f.frame.line) for f in raised if f.frame is not None}
    waited = all(_WAITED.search(f"{f.error} {f.message}") for f in raised)
    return len(places) == 1 and all(f.frame is not None for f in raised) and waited


def _came_later(fact: AnyFact, end: Ended) -> bool:
    """By the clock, else by their lines in one file."""
    if fact.at > 0 and end.at > 0:
        return fact.at > end.at
    return fact.file == end.file and fact.line > end.line
