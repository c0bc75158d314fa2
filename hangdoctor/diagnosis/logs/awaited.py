"""Of ranks whose own time limit ran out while they waited for one another: the one that the errors lead to.

A program that counts the seconds itself says for whom it waited: `no progress for 10 s: halo from rank 2`.
Who raises that is a waiter. Where the awaited rank waited for another one in turn, that one is meant.
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

_LIMIT = late(
    r"time[- ]?d?[ -]?out|gave up|\bno (?:answer|reply|response|progress|news|message|data|word)\b"
    r"|\bwait(?:ed|ing)\b|\b(?:after|within|for) \d[\d.]{0,9} ?(?:s|sec|seconds|m|min|minutes)\b",
    re.I,
)
_FROM = late(
    r"\b(?:from|for|on|by|of) (?:the )?(?:peer |neighbou?r |partner |sender |worker )?"
    r"rank[ _#:=]{0,2}(\d{1,7})\b",
    re.I,
)
_LONGEST = 64  # ranks of a chain


def awaited(scene: Scene, first: First) -> First | None:
    """The rank, in place of those whose limit ran out first; None where nobody is named, or the errors lead to
    several, or in a ring.
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
    text = f"{fact.error}: {fact.message}"
    if fact.rank < 0 or fact.rule or fact.survived or _LIMIT.search(text) is None:
        return None
    named = {int(number) for number in _FROM.findall(text)} - {fact.rank}
    return named.pop() if len(named) == 1 else None


def _failed(scene: Scene, rank: int) -> bool:
    """Whether it had an error of its own, which the waiters' may have followed."""
    return any(f.rank == rank and not f.survived for f in scene.of(PythonError))
