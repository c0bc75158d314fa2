"""Nodes whose scheduler says that their ranks have ended: dead, not silent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from msgspec import Struct

from ..model.capture import JobCapture, NodeCapture, RankCapture, SilentNode, ToldEnd


class NodeEnd(Struct, frozen=True):
    """How what ran on a node ended."""

    told: ToldEnd
    exit_code: int | None = None  # a negative number is the signal that ended it
    out_of_memory: bool = False


@runtime_checkable
class KnowsEnds(Protocol):
    """A `Reach` that can say how nodes ended that it has not asked."""

    def ends(self) -> Mapping[str, NodeEnd]:
        """{node: how it ended}."""
        ...

    def ranks_at_least(self) -> int:
        """How many ranks the job has at least, where no rank says it."""
        ...


def enter(capture: JobCapture, ends: Mapping[str, NodeEnd], at_least: int) -> None:
    """Put the ranks of silent nodes that have ended among the dead ones."""
    if not capture.world_size:
        capture.world_size = at_least
    silent: list[SilentNode] = []
    for node in capture.silent:
        if node.node in ends and node.ranks:
            capture.nodes.append(_ended(node, ends[node.node], capture.world_size))
        else:
            silent.append(node)
    capture.silent = silent


def _ended(node: SilentNode, end: NodeEnd, world: int) -> NodeCapture:
    ranks = [
        RankCapture(
            pid=0,
            rank=rank,
            node=node.node,
            world_size=world,
            gone=True,
            exit_code=end.exit_code,
            told=end.told,
        )
        for rank in node.ranks
    ]
    return NodeCapture(node.node, ranks=ranks, oom_kills=int(end.out_of_memory))
