"""Ranks that wait in an operation which no black box records: DistributedDataParallel reduces
gradients in C++, and such a rank seems to be in no operation.

The stacks of a capture show it, and that holds for as long as the rank makes no progress.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .arrival_lag import mark_behind
from .live_ranks import RankRow

_SLACK_S = 3.0  # between the clocks of a capture and of a rank's last progress


def mark(rows: Sequence[RankRow], ops: Mapping[int, str], ago_s: float) -> bool:
    """Say of ranks in no recorded operation in which one they wait; whether there was any.

    `ops` is what a capture `ago_s` seconds ago has shown, by rank.
    """
    found = [r for r in rows if r.rank in ops and _still_there(r, ago_s)]
    for row in found:
        row.state, row.op, row.seq = "waiting", f"{ops[row.rank]} (not recorded)", 0
        row.behind_s = 0.0
    if found:
        mark_behind(rows)
    return bool(found)


def _still_there(row: RankRow, ago_s: float) -> bool:
    return row.state == "outside" and row.idle_s >= ago_s - _SLACK_S
