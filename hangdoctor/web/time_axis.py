"""The recorded progress as the page's time axis shows it: columns of equal length for one span."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from msgspec import Struct

from ..storage.incidents import Incident
from ..watch.job_history import SHARES, SPANS, STEPS, Kept, KeptRing, Row, overlap, rows_of

_LEAST = 0.1  # of a bucket must have been counted before its rate is said
_MAX_CAPTURES = 200


class Stall(Struct):
    """Times of day; one that goes on ends at the time of the answer."""

    begin: float
    end: float
    goes_on: bool = False


class Capture(Struct):
    """A saved incident within the span; `at` is when it was captured."""

    at: float
    id: str
    status: str
    kind: str
    hang: str  # the same for all captures of one hang


class HistoryAnswer(Struct):
    """Progress in buckets of `step_s` seconds from `begin` on; all times are seconds since the epoch.

    `watched`, `alive` and `moved` are the shares of a bucket in which the collector ran and heard
    its agents, in which a rank of the job lived, and in which some rank made progress. `steps` are
    iterations a second, null where they are not known.
    """

    span: str
    begin: float
    step_s: float
    at: float  # of the newest sample
    since: float  # of the first sample, a bucket's begin; of none: `at`
    watched: list[float]
    alive: list[float]
    moved: list[float]
    steps: list[float | None]
    stalls: list[Stall]
    captures: list[Capture]


def time_axis(kept: Kept, span: str, wall: float, incidents: Sequence[Incident]) -> HistoryAnswer:
    """The span that ends at the time of day `wall`.

    Raises:
        KeyError: there is no such span.
    """
    step_s, length = SPANS[span]
    at = kept.at or wall
    newest = math.floor(at / step_s)
    begin = float((newest - length + 1) * step_s)
    rows = list(rows_of(kept.rings.get(span, KeptRing()), newest, length))
    times = [begin + i * step_s for i in range(length)]
    return HistoryAnswer(
        span=span,
        begin=begin,
        step_s=float(step_s),
        at=round(at, 1),
        since=min(_since(kept), round(at, 1)),
        watched=_shares(rows, 0, step_s),
        alive=_shares(rows, 1, step_s),
        moved=_shares(rows, 2, step_s),
        steps=[_rate(row, kept, t, step_s) for row, t in zip(rows, times, strict=True)],
        stalls=_stalls(kept, begin),
        captures=_captures(incidents, begin),
    )


def _since(kept: Kept) -> float:
    """When recording began, as exactly as the rings still say it."""
    found, width = math.inf, math.inf
    for name, (step_s, _) in reversed(SPANS.items()):
        ring = kept.rings.get(name, KeptRing())
        rows = (n for n, row in enumerate(ring.rows, ring.first) if row is not None)
        first = next(rows, None)
        if first is not None and first * step_s < found + width:  # else that ring has forgotten it
            found, width = float(first * step_s), float(step_s)
    return found


def _shares(rows: Iterable[Row | None], column: int, step_s: int) -> list[float]:
    return [round(row[column] / SHARES / step_s, 2) if row else 0.0 for row in rows]


def _rate(row: Row | None, kept: Kept, begin: float, step_s: int) -> float | None:
    """Steps a second in one bucket.

    Since the last step there was none, which is no reason to show zero yet: a step may take a
    minute. Until the next one the rate is at most one step in the time that has passed.
    """
    counted = row[3] / SHARES if row else 0.0
    if row is None or counted < _LEAST * step_s:
        return None
    steps = row[4] / STEPS
    since = kept.at - kept.stepped
    if kept.stepped and kept.pace_s and since > 0:
        going = min(1 / kept.pace_s, 1 / since)
        steps += going * since * overlap(begin, step_s, kept.stepped, kept.at)
    return float(f"{steps / counted:.4g}")


def _stalls(kept: Kept, begin: float) -> list[Stall]:
    return [Stall(a, b, goes_on=b >= kept.at - 1.0) for a, b in kept.stalls if b > begin]


def _captures(incidents: Iterable[Incident], begin: float) -> list[Capture]:
    """Newest first, as the incidents are."""
    found = [i for i in incidents if i.state == "saved" and i.at >= begin][:_MAX_CAPTURES]
    return [Capture(at=i.at, id=i.id, status=i.status, kind=i.kind, hang=i.hang) for i in found]
