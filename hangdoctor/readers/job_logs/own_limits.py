"""Ranks that called MPI_Abort since a time limit of the program's own had run out, by the words
right above.

[heat 3] FATAL halo exchange not complete after 10 s
MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD

Who says so is a waiter, and mostly all of them say it: which one calls MPI_Abort is chance.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...model.log_facts import MPI_ABORT, AnyFact, Ended, UnreadFailure
from ...text.late import late

_NEAR = 24  # lines: those of all ranks may lie between
_WAITED = (
    r"(?:not (?:complete|done|finished|received|arrived|answered)|no (?:answer|reply|progress|data|news|message)\w{0,2}"
    r"|time[d-]? ?out|gave up|giving up|waited|waiting)\b"
)
_LIMIT = late(
    rf"\b{_WAITED}.{{0,80}}?\b(?:after|for|in|within|of) (\d{{1,6}}(?:\.\d{{1,3}})?) ?s(?:ec\w{{0,5}})?\b",
    re.I,
)
_ALIKE = late(rf"\b{_WAITED}", re.I)


def mark(facts: Sequence[AnyFact], unread: Sequence[UnreadFailure]) -> None:
    """Set for how long they had waited."""
    for end in facts:
        if not isinstance(end, Ended) or end.by != MPI_ABORT or end.waited_s:
            continue
        near = [f for f in unread if f.file == end.file and 0 < end.line - f.line <= _NEAR]
        near = [f for f in near if f.rank == end.rank] or near
        limits = [_LIMIT.search(fact.text) for fact in near]
        # All that was said there, of this rank where it shows: one with another reason has that one.
        seconds = [float(match[1]) for match in limits if match is not None]
        if seconds and len(seconds) == len(near) and all(map(_says_nothing_else, near)):
            end.waited_s = seconds[-1]


def _says_nothing_else(fact: UnreadFailure) -> bool:
    """Whether all lines of its form that were said together are of a wait; `likeness` has them with
    a # for each blank.
    """
    lines = [line.replace("#", " ") for line in fact.likeness]
    form = lines[0].split(" ", 1)[0] if lines else ""
    return all(_ALIKE.search(line) is not None for line in lines if line.startswith(form))
