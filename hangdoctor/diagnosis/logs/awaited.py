"""Of ranks whose own time limit ran out while they waited for one another: the one that the errors
lead to.

A program that counts the seconds itself says for whom it waited: `no progress for 10 s: halo from
rank 2`. Who raises that is a waiter. Where the awaited rank waited for another one in turn, that
one is meant.
"""

from __future__ import annotations

import re

from ...model.log_facts import PythonError
from ...text.late import late
from ..confidence import Ground, sure
from ..findings import Finding
from ..findings.log_stories import FailedFirst, GaveUpOn
from .candidate import First
from .scene import Scene

_WAITED = late(
    r"\b(?:no (?:answer|reply|response|progress|news|message|data|halo|word)|wait(?:ed|ing)|gave up|giving up|not (?:received|arrived)"
    r"|time[d-]? ?out|timeout)\b",
    re.I,
)
_SECONDS = late(
    r"\b(?:after|within|for|in|of) \d[\d.]{0,9} ?(?:s|sec|seconds|m|min|minutes)\b", re.I
)
_OF_LIMITS = late(r"Time[d]?[Oo]ut|Stall|NoProgress|Deadline")  # in the name of an exception
_FROM = late(
    r"\b(?:from|for) (?:the )?(?:peer |neighbou?r |partner |sender |worker )?rank[ _#:=]{0,2}(\d{1,7})\b",
    re.I,
)
# Of a value or a name, whatever their words are
_OF_VALUES = frozenset({"ValueError", "KeyError", "IndexError", "TypeError", "AssertionError"})
_LONGEST = 64  # ranks of a chain


def awaited(scene: Scene, first: First) -> First | None:
    """The rank, in place of those whose limit ran out first; None where no rank is named, or the
    errors lead to several, or in a ring.
    """
    own_error = isinstance(first.finding.story, FailedFirst) and first.finding.kind == "error"
    if not own_error or not first.finding.ranks:
        return None
    waits = {f.rank: f for f in scene.of(PythonError) if _waited_for(f) is not None}
    ends = {_end(waits, rank) for rank in first.finding.ranks}
    last = ends.pop() if len(ends) == 1 else -1
    if last not in waits:
        return None
    by = waits[last]
    rank = _waited_for(by)
    if rank is None or _failed(scene, rank):
        return None
    finding = Finding(
        kind="not_entered",
        ranks=[rank],
        story=GaveUpOn(last, scene.quote(by)),
        confidence=sure(Ground.LOG_AWAITED),
        nodes=scene.nodes([rank]),
    )
    return First(finding, [by, *(f for f in first.facts if f is not by)], True)


def _end(waits: dict[int, PythonError], rank: int) -> int:
    """The last waiter of the chain that begins at a rank; -1 of a ring."""
    for _ in range(_LONGEST):
        peer = _waited_for(waits[rank]) if rank in waits else None
        if peer is None or peer not in waits:
            return rank
        rank = peer
    return -1


def _waited_for(fact: PythonError) -> int | None:
    """The one other rank that an error of a time limit names."""
    if fact.rank < 0 or fact.rule or fact.survived or fact.error in _OF_VALUES:
        return None
    waited = _WAITED.search(fact.message) is not None and _SECONDS.search(fact.message) is not None
    if not waited and _OF_LIMITS.search(fact.error) is None:
        return None
    named = {int(number) for number in _FROM.findall(fact.message)} - {fact.rank}
    return named.pop() if len(named) == 1 else None


def _failed(scene: Scene, rank: int) -> bool:
    """Whether it had an error of its own, which the waiters' may have followed."""
    return any(f.rank == rank and not f.survived for f in scene.of(PythonError))
