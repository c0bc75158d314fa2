"""Ranks that were ending, by torch's own warning, well before others gave up waiting: a lead, since whom those
waited for does not show.
"""

from __future__ import annotations

from ...model.log_facts import KnownError, TimedOut
from ..findings.log_counts import LeftBefore
from .scene import Scene, is_dated, ranks_named

_RULE = "pg_left_up"  # of torch's line at the end of a process
_FEW = 3  # ranks
_WELL_S = 20.0  # before the limit: a process that goes after it is a consequence


def left_before(scene: Scene) -> LeftBefore | None:
    """Who was ending while others waited; None of those who had given up themselves, and of many."""
    waits = [w for w in scene.of(TimedOut) if is_dated(w)]
    if not waits:
        return None
    first = min(waits, key=lambda w: w.at)
    said = [f for f in scene.of(KnownError) if f.rule == _RULE and f.rank >= 0]
    before = [f for f in said if is_dated(f) and f.at < first.at - _WELL_S]
    before = [f for f in before if f.rank not in set(ranks_named(waits))]
    ranks = tuple(ranks_named(before))
    if not 0 < len(ranks) <= _FEW:
        return None
    line = min(before, key=lambda f: f.at)
    at = f"{scene.logs.files[line.file].name}:{line.line}"
    return LeftBefore(ranks, first.at - max(f.at for f in before), at)
