"""Several ranks that come to the collectives of a job late, and together: all others wait for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

_APART = 4.0  # how much later than the others they come, in what lies between themselves
_OFTEN = 0.8  # of the time that is lost by those that come late
_NOTICED_S = 0.01

Times = Mapping[int, float]  # when each rank entered one collective


class LateTogether(Struct, frozen=True):
    """The ranks, by how much each time they came later than all others, and how much that was in all."""

    ranks: tuple[int, ...]
    by: list[float]

    @property
    def lost(self) -> float:
        """Seconds that the others waited."""
        return sum(self.by)


def late_together(entered: Sequence[Times]) -> LateTogether | None:
    """Those to whom most of the lost time is due; None where that is one rank, or no one group of them."""
    lost: dict[tuple[int, ...], list[float]] = defaultdict(list)
    for times in entered:
        in_order = sorted(times, key=lambda rank: times[rank])
        gaps = [times[b] - times[a] for a, b in pairwise(in_order)]
        widest = max(range(len(gaps)), key=lambda n: gaps[n])
        late = in_order[widest + 1 :]
        spread = times[late[-1]] - times[late[0]]
        if gaps[widest] >= max(_NOTICED_S, _APART * spread):
            lost[tuple(sorted(late))].append(gaps[widest])
    if not lost:
        return None
    ranks, by = max(lost.items(), key=lambda one: sum(one[1]))
    every = sum(sum(seconds) for seconds in lost.values())
    return LateTogether(ranks, by) if len(ranks) > 1 and sum(by) >= _OFTEN * every else None
