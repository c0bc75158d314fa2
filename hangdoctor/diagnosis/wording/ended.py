"""What a rank of a job that is over was at, in a few words."""

from __future__ import annotations

from ...model.operations import RankOps


def last_place(ops: RankOps | None) -> str:
    """`in all_reduce #12, iteration 3`; "" where nothing was recorded."""
    if ops is None or not len(ops.operations):
        return ""
    open_ones = [o for o in ops.unfinished() if not o.asynchronous]
    last = open_ones[-1] if open_ones else ops.operations[-1]
    parts = [f"{'in' if open_ones else 'after'} {last.op} #{last.seq}"]
    if ops.phase:
        parts.append(ops.phase)
    if ops.iteration >= 0:
        parts.append(f"iteration {ops.iteration}")
    return ", ".join(parts)
