"""Ranks that end together with their node, so that no agent can report it: a pod that is deleted or
out of memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..model.members import Members
from ..transport.messages import NodeNews, RankNow
from ..watch.stall_watch import StallWatch
from .instructions import Node


class EndedMembers:
    """Says once of each node that its ranks have ended."""

    def __init__(self) -> None:
        self._told: frozenset[str] = frozenset()

    def news(
        self, members: Members, nodes: Mapping[str, Node], watchdog: StallWatch, now: float
    ) -> Iterator[NodeNews]:
        """What the agents of nodes that have ended since the call before would report."""
        fresh = members.ended.keys() - self._told
        self._told = frozenset(members.ended)
        for name in sorted(fresh & nodes.keys()):
            clean = members.ended[name]
            running = [rank for rank, over in nodes[name].ranks.items() if not over]
            ranks = [_ended(rank, watchdog.idle_s(rank, now), clean) for rank in running]
            yield NodeNews(name, ranks=ranks)


def _ended(rank: int, idle_s: float, clean: bool) -> RankNow:
    return RankNow(rank, idle_s=idle_s, over=True, finished=clean, failed=not clean)
