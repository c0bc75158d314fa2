"""All ranks wait at one line of an exchange between them, and one of them is in a far earlier, or later, round.

A rank that a neighbour keeps waiting is a round behind it at most, and the next one one more: the counts
of a halo exchange that stands lie close together. One that is further off than all others among
themselves began at another step, as from an older checkpoint, or left rounds out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import findings as f
from .case import Case, finding_on, in_op, op_of, ranks_of, where_held
from .confidence import Ground, sure
from .findings import Finding
from .position import ITERATIONS
from .view import RankView

_FEWEST = 4  # ranks
_CLEARLY = 1.5


def find(case: Case, waiting: Sequence[RankView]) -> Finding | None:
    """Name it; None where the counts are not known of all, or lie close together."""
    if len(waiting) != case.world_size or len(waiting) < _FEWEST:
        return None
    if any(view.place.kind != "p2p" for view in waiting):
        return None
    if len({str(view.place.frame) for view in waiting}) > 1:
        return None
    for name in ITERATIONS:
        counts = {view.rank: count for view in waiting if (count := _count(view, name)) >= 0}
        rank = far_from_all(counts) if len(counts) == len(waiting) else -1
        if rank >= 0:
            return _finding(case, name, waiting, counts, rank)
    return None


def far_from_all(counts: Mapping[int, int]) -> int:
    """The one rank whose count is clearly further from the nearest than all others are from one another,
    and by more than one; -1 without one.
    """
    found = []
    for rank, count in counts.items():
        others = [other for key, other in counts.items() if key != rank]
        gap = min(abs(count - other) for other in others)
        if gap > max(1, _CLEARLY * (max(others) - min(others))):
            found.append(rank)
    return found[0] if len(found) == 1 else -1


def _count(view: RankView, name: str) -> int:
    frame = view.place.frame
    return frame.values.get(name, -1) if frame is not None else -1


def _finding(
    case: Case, name: str, waiting: Sequence[RankView], counts: Mapping[int, int], rank: int
) -> Finding:
    [view] = [v for v in waiting if v.rank == rank]
    others = [v for v in waiting if v is not view]
    numbers = [counts[v.rank] for v in others]
    story = f.StepsApart(
        name, counts[rank], min(numbers), max(numbers), op_of([view]), ranks_of(others)
    )
    finding = finding_on(case, "mismatch", [view], story, confidence=sure(Ground.STEPS_APART))
    finding.where = where_held(case, others, view)
    finding.clues = [in_op([view]), in_op(others)]
    return finding
