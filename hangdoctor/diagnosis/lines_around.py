"""The lines of a log around the one that the verdict rests on: they may name the reason, the process or
the host in words that no rule knows.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..model.diagnosis import Around, LogLine
from ..model.log_facts import JobLogs
from ..model.log_lines import Excerpt
from .case import Case
from .draft import Draft
from .findings.log_remaining import LogRemaining, Undecided

_OPEN = frozenset(
    {Undecided.NO_END, Undecided.FOLLOWED, Undecided.LAUNCHER_ONLY, Undecided.CUT_IN_WAIT}
)


def lines_around(case: Case, draft: Draft) -> Around | None:
    """None where the verdict rests on no line of a log."""
    logs = case.capture.logs
    if logs is None:
        return None
    by_place = {(logs.name_of(one.file), one.line): one for one in logs.excerpts}
    for place in _places(draft):
        found = by_place.get(place)
        if found is not None:
            return _around(logs, found)
    return _last(logs) if _knows_nothing(case, draft) else None


def _places(draft: Draft) -> Iterator[tuple[str, int]]:
    """File and line of the cause, or of what else the verdict tells."""
    if draft.findings:
        yield from ((event.file, event.line) for event in draft.chain if event.role == "cause")
    elif draft.remaining is not None and draft.remaining.reason in _OPEN:
        yield from _quoted(draft.remaining)


def _quoted(why: LogRemaining) -> Iterator[tuple[str, int]]:
    for quote in (why.last, why.trouble):
        if quote is not None:
            yield quote.file, quote.line


def _knows_nothing(case: Case, draft: Draft) -> bool:
    """Whether the log is all there is, and no line of it tells how the job went."""
    if draft.findings or case.views or case.capture.over or draft.remaining is None:
        return False
    clean = draft.remaining.reason is Undecided.ENDED_CLEANLY
    return draft.remaining.reason is Undecided.NO_END or not (draft.chain or clean)


def _last(logs: JobLogs) -> Around | None:
    """The last lines of the only file."""
    last = [one for one in logs.excerpts if not one.line]
    return _around(logs, last[0]) if len(last) == 1 else None


def _around(logs: JobLogs, excerpt: Excerpt) -> Around:
    lines = [LogLine(row.line, row.says) for row in excerpt.rows]
    return Around(logs.name_of(excerpt.file), excerpt.line, lines)
