"""The lines of a log that a person would point at, beside a verdict that names no rank or has little
evidence: those that speak of a failure, in whatever words, and are not shown around its own line.
"""

from __future__ import annotations

from ..model.diagnosis import Around, LogLine
from .case import Case
from .draft import Draft
from .findings.log_remaining import Undecided

_MOST = 9  # lines, of all files
_LITTLE = 0.7  # a confidence up to which a person should look at them
_WELL = frozenset({Undecided.ENDED_CLEANLY, Undecided.FROM_OUTSIDE})


def lines_pointed(case: Case, draft: Draft, around: Around | None) -> list[Around]:
    """One part for each file that has some, the file of the verdict's own line first."""
    logs = case.capture.logs
    if logs is None or not logs.pointed or not _on_little(draft):
        return []
    shown = {(around.file, one.line) for one in around.lines} if around is not None else set()
    lines = [one for one in logs.pointed if (logs.name_of(one.file), one.line) not in shown]
    first = around.file if around is not None else ""
    best = sorted(
        lines, key=lambda one: (logs.name_of(one.file) != first, -one.weight, one.file, one.line)
    )
    chosen = sorted(best[:_MOST], key=lambda one: (one.file, one.line))
    files = dict.fromkeys(logs.name_of(one.file) for one in best if one in chosen)
    parts = {name: [one for one in chosen if logs.name_of(one.file) == name] for name in files}
    return [
        Around(name, part[0].line, [LogLine(one.line, one.says) for one in part])
        for name, part in parts.items()
    ]


def _on_little(draft: Draft) -> bool:
    if draft.findings:
        return draft.findings[0].confidence <= _LITTLE
    return draft.remaining is not None and draft.remaining.reason not in _WELL
