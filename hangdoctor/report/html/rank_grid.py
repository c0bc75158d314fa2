"""The grid of ranks: by the three axes of the layout, and by node."""

from __future__ import annotations

from msgspec import Struct

from ...model.layout import Layout
from .rank_details import Rank


class Line(Struct):
    """One row of squares."""

    label: str
    ranks: list[Rank]


class Block(Struct):
    """Rows that belong together: a replica, a node."""

    label: str
    columns: list[str]  # labels over the columns; none over a node's ranks
    lines: list[Line]


class Arrangement(Struct):
    """One way to lay all ranks out."""

    name: str  # layout, node or number
    title: str
    blocks: list[Block]


_ROW = 16  # ranks in a line where neither layout nor nodes are known


def arrangements(everybody: list[Rank], layout: Layout | None) -> list[Arrangement]:
    """The ways to lay the ranks out, the best one first."""
    found = []
    if (
        layout is not None
        and layout.world_size == len(everybody)
        and max(layout.dp, layout.pp, layout.tp) < len(everybody)
    ):
        found.append(Arrangement("layout", "dp \u00d7 pp \u00d7 tp", _by_layout(everybody, layout)))
    nodes = {r.node for r in everybody}
    if nodes - {""}:
        found.append(Arrangement("node", "by node", _by_node(everybody)))
    if not found and everybody:
        found.append(Arrangement("number", "by number", [Block("", [], _lines(everybody))]))
    return found


def _by_layout(everybody: list[Rank], layout: Layout) -> list[Block]:
    """A block for each pipeline stage, replicas downwards, tensor slices across; without slices,
    stages downwards.
    """
    if layout.tp == 1:
        lines = [
            Line(f"pp {pp}", [everybody[layout.rank(pp, dp, 0)] for dp in range(layout.dp)])
            for pp in range(layout.pp)
        ]
        return [Block("", [f"dp {dp}" for dp in range(layout.dp)], lines)]
    return [
        Block(
            f"pp {pp}" if layout.pp > 1 else "",
            [f"tp {tp}" for tp in range(layout.tp)],
            [
                Line(f"dp {dp}", [everybody[layout.rank(pp, dp, tp)] for tp in range(layout.tp)])
                for dp in range(layout.dp)
            ],
        )
        for pp in range(layout.pp)
    ]


def _by_node(everybody: list[Rank]) -> list[Block]:
    """A block for each node, its ranks by local rank; what has no node comes last."""
    nodes: dict[str, list[Rank]] = {}
    for r in everybody:
        nodes.setdefault(r.node, []).append(r)
    blocks = []
    for node in sorted(nodes, key=lambda n: (n == "", nodes[n][0].rank)):
        own = sorted(nodes[node], key=_local_rank)
        if any(_local_rank(r)[0] < 0 for r in own):  # of a process that is gone it is unknown
            own = sorted(own, key=lambda r: r.rank)
        blocks.append(
            Block(node or "node unknown", [], _lines(own) if len(own) > _ROW else [Line("", own)])
        )
    return blocks


def _local_rank(of: Rank) -> tuple[int, int]:
    return (of.line.local_rank if of.line else -1, of.rank)


def _lines(some: list[Rank]) -> list[Line]:
    return [Line(str(some[i].rank), some[i : i + _ROW]) for i in range(0, len(some), _ROW)]
