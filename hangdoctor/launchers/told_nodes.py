"""Nodes that were not asked, because what runs them says why they cannot answer: their ranks have
ended, or never began.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from msgspec import Struct

from ..model.capture import JobCapture, NodeCapture, RankCapture, SilentNode, ToldEnd


class NodeTold(Struct, frozen=True):
    """What a scheduler says of a node that cannot be asked."""

    says: str
    see: str  # the command that shows more
    ended: bool = False  # it ran, and does not any more
    unstarted: bool = False  # it has never run
    exit_code: int | None = None  # a negative number is the signal that ended it
    out_of_memory: bool = False


@runtime_checkable
class TellsOfNodes(Protocol):
    """A `Reach` whose scheduler says why it has not asked some nodes."""

    def told(self) -> Mapping[str, NodeTold]:
        """{node: what is known of it}."""
        ...

    def notes(self, capture: JobCapture) -> list[str]:
        """What a person is to know of this capture, and could change for the next."""
        ...


def enter(capture: JobCapture, told: Mapping[str, NodeTold]) -> None:
    """Put the ranks of nodes that have ended among the dead, and mark those that never began."""
    silent: list[SilentNode] = []
    for node in capture.silent:
        known = told.get(node.node)
        if known is not None and known.ended and node.ranks:
            capture.nodes.append(_ended(node, known, capture.world_size))
            continue
        if known is not None:
            node.see, node.unstarted = known.see, known.unstarted
        silent.append(node)
    capture.silent = silent


def _ended(node: SilentNode, known: NodeTold, world: int) -> NodeCapture:
    ranks = [
        RankCapture(
            pid=0,
            rank=rank,
            node=node.node,
            world_size=world,
            gone=True,
            exit_code=known.exit_code,
            told=ToldEnd(known.says, known.see),
        )
        for rank in node.ranks
    ]
    return NodeCapture(node.node, ranks=ranks, oom_kills=int(known.out_of_memory))
