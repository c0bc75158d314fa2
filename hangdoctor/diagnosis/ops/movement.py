"""Who moved between the two captures, and who holds the others up while all move."""

from __future__ import annotations

from statistics import median

from ...model import Cause, Evidence
from ...operations import RankOps
from .keys import UNNUMBERED
from .scene import Scene
from .words import nodes_of, place_text

_WAITING_SHARE = 0.2  # of their time that others spend waiting before a straggler is worth naming
_STANDS_OUT = 0.5  # the straggler waits at most so much of what the next one waits


def moved(earlier: RankOps, later: RankOps) -> bool:
    """Whether a rank completed or entered anything between the captures."""
    if later.iteration != earlier.iteration or later.finished != earlier.finished:
        return True
    before, after = earlier.operations, later.operations
    if not before or not after:
        return bool(before) != bool(after)
    a, b = before[-1], after[-1]
    if (a.group, a.seq, a.op, a.state, a.peer) != (b.group, b.seq, b.op, b.state, b.peer):
        return True
    return sum(o.state != "done" for o in before) != sum(o.state != "done" for o in after)


def moved_ranks(earlier: dict[int, RankOps], later: dict[int, RankOps]) -> set[int]:
    return {rank for rank, ops in later.items() if rank in earlier and moved(earlier[rank], ops)}


def straggler(scene: Scene) -> Cause | None:
    """The rank that hardly waits while all others do: from durations alone, since the clocks of nodes differ."""
    shares = {rank: share for rank, ops in scene.ops.items() if (share := _waiting_share(ops)) is not None}
    if len(shares) < 2 or len(shares) < len(scene.ops):
        return None
    slowest = min(shares, key=lambda r: shares[r])
    others = [s for r, s in shares.items() if r != slowest]
    usual, least = median(others), min(others)
    if usual < _WAITING_SHARE or shares[slowest] > _STANDS_OUT * least:
        return None
    summary = (
        f"The job moves, but rank {slowest} enters last and the others wait for it: they spend {usual:.0%} of their time "
        f"waiting, it {shares[slowest]:.0%}{place_text(scene, [slowest])}."
    )
    cause = Cause("slow", [slowest], nodes_of(scene, [slowest]), 0.8, summary)
    cause.evidence = [
        Evidence("ops", [slowest], f"spent {shares[slowest]:.0%} of the time that its records cover inside operations"),
        Evidence("ops", sorted(r for r in shares if r != slowest), f"spent {usual:.0%} of it there (median)"),
    ]
    cause.advice = "Compare its node with the others: clocks, thermals, other processes, storage; or give it less work."
    return cause


def _waiting_share(ops: RankOps) -> float | None:
    """Share of the recorded time that a rank spent inside collectives and receives; None without times."""
    timed = [o for o in ops.operations if o.state == "done" and o.left_s > 0 and o.entered_s > 0]
    waits = [o for o in timed if o.op not in UNNUMBERED or o.op in ("recv", "send")]
    if len(waits) < 4:
        return None
    span = timed[-1].left_s - timed[0].entered_s
    return min(1.0, sum(o.left_s - o.entered_s for o in waits) / span) if span > 0 else None
