"""Arrival lag: how much later than its peers a rank comes to operations, from the shares of time
that the ranks wait.

Who comes last waits least. Shares of time need no common clock; the page, the metrics and `top`
share this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .live_ranks import RankRow

_BEHIND_S = 1.5  # reports of two nodes may be so far apart: shorter waits are not told from the way
_SMOOTH = 0.1  # of a new report
_PACE_S = 30.0  # over which the time of an iteration is taken


def smoothed(old: float, told: float) -> float:
    """Percent of its time that a rank waits, with a new report in it; -1 if unknown."""
    if told < 0 or old < 0:
        return max(told, old)
    return old + (told - old) * _SMOOTH


def mark_lag(rows: Sequence[RankRow], waits: Mapping[int, float]) -> None:
    """Set `lag_s` of the ranks that move: how much more the one that waits most waits than this
    one, in each second.

    `waits` are percent by rank.
    """
    known = [(row, waits.get(row.rank, -1.0)) for row in rows if row.state == "moving"]
    known = [(row, share) for row, share in known if share >= 0]
    if len(known) < 2:
        return
    most = max(share for _, share in known)
    for row, share in known:
        row.lag_s = (most - share) / 100


def mark_behind(rows: Sequence[RankRow]) -> None:
    """Set `behind_s` of whoever is not in an operation while others have waited for a while: how
    long the first of those has.
    """
    longest = max((r.idle_s for r in rows if r.state == "waiting"), default=0.0)
    if longest < _BEHIND_S:
        return
    for row in rows:
        if row.state in ("outside", "working", "still", "silent", "gone", "stopped", "blocked"):
            row.behind_s = longest


def per_iteration(rows: Sequence[RankRow], pace_s: float) -> None:
    """Make of the lag in each second that in each iteration; where no one knows the time of one it
    stays as it is.
    """
    for row in rows:
        row.lag_s *= pace_s or 1.0


def lag_of(row: RankRow) -> float:
    """The arrival lag of a rank: while ranks stand it is the time for which the others have waited."""
    return max(row.lag_s, row.behind_s)


class Pace:
    """Seconds an iteration, over the last half minute."""

    def __init__(self) -> None:
        self._steps: list[tuple[float, int]] = []

    def step(self, mono: float, iteration: int) -> float:
        """With the lowest iteration of now; 0 where it is not known yet."""
        steps = self._steps
        if steps and iteration < steps[-1][1]:
            steps.clear()
        if iteration >= 0 and (not steps or iteration > steps[-1][1]):
            steps.append((mono, iteration))
        while len(steps) > 2 and mono - steps[0][0] > _PACE_S:
            del steps[0]
        if len(steps) < 2:
            return 0.0
        (then, first), (at, last) = steps[0], steps[-1]
        return (at - then) / (last - first)
