"""Ranks that called MPI_Abort since a time limit of the program's own had run out, by the words right above.

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
_LIMIT = late(
    r"\b(?:not (?:complete|done|finished|received|arrived|answered)|no (?:answer|reply|progress|data|news|message)\w{0,2}"
    r"|time[d-]? ?out|gave up|giving up|waited|waiting)\b.{0,80}?\b(?:after|for|in|within|of) (\d{1,6}(?:\.\d{1,3})?) ?s(?:ec\w{0,5})?\b",
    re.I,
)


def mark(facts: Sequence[AnyFact], unread: Sequence[UnreadFailure]) -> None:
    """Set for how long they had waited."""
    for end in facts:
        if not isinstance(end, Ended) or end.by != MPI_ABORT or end.waited_s:
            continue
        near = [f for f in unread if f.file == end.file and 0 < end.line - f.line <= _NEAR]
        told = [match for f in near if (match := _LIMIT.search(f.text)) is not None]
        if told:
            end.waited_s = float(told[-1][1])
