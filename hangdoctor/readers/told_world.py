"""The world size of a job whose processes have it in no variable or argument, as torch's own set-up tells it: a rank
that waits in init_process_group holds its rank and the world size.

Actors of Ray, say, set RANK and WORLD_SIZE in Python, which /proc does not show: without this, a rank that was never
started is not missed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..model.capture import RankCapture
from .group_lists import SET_UP


def take_told_world(ranks: Sequence[RankCapture]) -> None:
    """Give the ranks the world size that they were told, where all that tell one agree, also about their numbers."""
    told = {rank.rank: pair for rank in ranks for pair in _told(rank)}
    worlds = {world for _, world in told.values()}
    if len(worlds) != 1 or any(rank != own for rank, (own, _) in told.items()):
        return
    [world] = worlds
    if all(rank.world_size < world and rank.rank < world for rank in ranks):
        for rank in ranks:
            rank.world_size = world


def _told(rank: RankCapture) -> Iterator[tuple[int, int]]:
    threads = rank.samples[-1].threads if rank.samples else []
    for frame in (frame for thread in threads for frame in thread.frames):
        if SET_UP in frame.lists:
            own, world = frame.lists[SET_UP]
            yield own, world
            return
