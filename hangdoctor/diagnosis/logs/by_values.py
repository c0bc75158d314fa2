"""What a table of one value a rank says of an error beside it: all have a value that is no number, one has, or
each has another one. Who raised the error only printed the table, as all ranks may.
"""

from __future__ import annotations

import math
from collections import Counter

from ...model.log_facts import NAN_GUARD, PythonError, RankValues
from ..confidence import Ground, sure
from ..findings import Finding
from ..findings.log_stories import TableTells
from .candidate import First
from .scene import Scene

_ABOVE = 4  # lines between an error and the first row of the table in its message
_BELOW = 12  # lines between the table and the traceback of what followed from that error
_CHECKS = ("", NAN_GUARD)  # rules of errors that a check of values may raise
_ENOUGH = 3  # ranks: two show no odd one


def by_values(scene: Scene, error: First | None) -> First | None:
    """What the table beside this error tells; without an error, beside a traceback that lacks one."""
    for table in scene.of(RankValues):
        raised = _raised(scene, table, error)
        told = _odd(table) if raised is not None else None
        if raised is None or told is None:
            continue
        how, odd = told
        where = scene.quote(table, table.title)
        story = TableTells(how, where, tuple(table.ranks), raised.error)
        ground = Ground.LOG_VALUE_APART if odd else Ground.LOG_VALUES
        finding = Finding("error", odd, story, sure(ground), nodes=scene.nodes(odd))
        return First(finding, [table, *([raised] if raised.error else [])], bool(odd))
    return None


def _raised(scene: Scene, table: RankValues, error: First | None) -> PythonError | None:
    """The exception whose message the table is part of: it stands right above. Where that line is missing, the
    traceback of what followed from it.
    """
    errors = [f for f in scene.of(PythonError) if f.file == table.file and not f.survived]
    if error is None:
        below = [f for f in errors if not f.error and f.role == "consequence"]
        near = [f for f in below if 0 < f.line - table.line <= _BELOW]
    else:
        own = [f for f in errors if f in error.facts and f.rule in _CHECKS]
        begin = table.line - len(table.ranks)
        near = [f for f in own if 0 <= begin - f.line <= _ABOVE]
    return near[0] if near else None


def _odd(table: RankValues) -> tuple[str, list[int]] | None:
    """How the values are, and the ranks that are apart from all others; None where all are one number."""
    numbers = dict(zip(table.ranks, map(_number, table.values), strict=True))
    bad = [rank for rank, number in numbers.items() if not math.isfinite(number)]
    if len(bad) == len(numbers):
        return "no number", []
    if bad:
        return ("one no number", bad) if 2 * len(bad) < len(numbers) else ("some no number", [])
    counts = Counter(numbers.values()).most_common()
    if len(counts) == 1:
        return None
    if len(counts) == 2 and counts[1][1] == 1 and len(numbers) >= _ENOUGH:
        return "one other", [rank for rank, n in numbers.items() if n == counts[1][0]]
    return "all other", []


def _number(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return math.nan
