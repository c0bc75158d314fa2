"""All ranks on one axis."""

from __future__ import annotations

from .clocks import align
from .instances import match
from .model import Correction, Lane, RankTrace, Timeline, Trace, nanoseconds


def _move(lane: Lane, base: int) -> None:
    """Count its times from `base` on; -1 stays what has not ended."""
    lane.begin = [at - base for at in lane.begin]
    lane.end = [at - base if at >= 0 else -1 for at in lane.end]


def build(trace: Trace) -> Timeline:
    """Match the records, align the clocks, and put every operation on the common axis."""
    instances = match(trace.ranks)
    clocks = align(trace.ranks, instances)
    of = {c.clock: c for c in clocks}
    lanes = [_lane(rank, of[rank.clock]) for rank in trace.ranks]
    seen = [at for lane in lanes for at in (*lane.begin, *lane.end) if at >= 0]
    for rank in trace.ranks:
        told = [m.at_s for m in rank.ops.marks]
        if rank.ops.heartbeat_s > 0:
            told.append(rank.ops.heartbeat_s)
        seen += [of[rank.clock].at(nanoseconds(at)) for at in told]
    base, last = min(seen, default=0), max(seen, default=0)
    for lane in lanes:
        _move(lane, base)
    return Timeline(trace, lanes, instances, clocks, base_ns=base, end_ns=last - base)


def _lane(trace: RankTrace, correction: Correction) -> Lane:
    begin: list[int] = []
    end: list[int] = []
    for op in trace.ops.operations:
        begin.append(correction.at(nanoseconds(op.entered_s)))
        # Where a clock was set back during an operation, or no end was recorded, its beginning is
        # taken for its end.
        left = correction.at(nanoseconds(op.left_s)) if op.left_s else 0
        end.append(max(begin[-1], left) if op.state == "done" else -1)
    return Lane(trace, begin, end)
