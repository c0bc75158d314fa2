"""Who moved between the two captures, by the operations of each rank alone."""

from __future__ import annotations

from ...model.operations import RankOps


def moved(earlier: RankOps, later: RankOps) -> bool:
    """Whether a rank completed or entered anything between the captures."""
    if later.iteration != earlier.iteration or later.finished != earlier.finished:
        return True
    a, b = earlier.newest_in_training(), later.newest_in_training()
    if a is None or b is None:
        return a is not b
    if (a.group, a.seq, a.op, a.state, a.peer) != (b.group, b.seq, b.op, b.state, b.peer):
        return True
    return len(earlier.unfinished_in_training()) != len(later.unfinished_in_training())


def moved_ranks(earlier: dict[int, RankOps], later: dict[int, RankOps]) -> set[int]:
    """Ranks that moved between the captures, of those that are in both."""
    return {rank for rank, ops in later.items() if rank in earlier and moved(earlier[rank], ops)}
