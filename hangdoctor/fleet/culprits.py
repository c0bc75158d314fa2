"""Nodes that are culprits again and again, over all jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from ..storage.incident_words import Entry

_COUNTED = ("hang", "failed", "slow")
_LEAST = 2
MAX_NODES = 200


class CulpritNode(Struct):
    """How often a node had a culprit, in how many jobs; several captures of one hang count once."""

    node: str
    incidents: int
    jobs: int
    kinds: dict[str, int]
    last: float  # time of day
    summary: str  # of the last one


def culprit_nodes(entries: Iterable[Entry], least: int = _LEAST) -> list[CulpritNode]:
    """Nodes with at least `least` incidents, those in the most jobs first; `entries` newest first."""
    found: dict[str, list[Entry]] = {}
    seen: set[tuple[str, str, str]] = set()
    for entry in entries:
        if entry.status not in _COUNTED:
            continue
        for node in entry.nodes:
            hang = (node, entry.folder, entry.hang or entry.id)
            if hang not in seen:
                seen.add(hang)
                found.setdefault(node, []).append(entry)
    nodes = [_node(node, some) for node, some in found.items() if len(some) >= least]
    return sorted(nodes, key=lambda n: (-n.jobs, -n.incidents, -n.last, n.node))[:MAX_NODES]


def _node(node: str, some: list[Entry]) -> CulpritNode:
    return CulpritNode(
        node=node,
        incidents=len(some),
        jobs=len({entry.folder for entry in some}),
        kinds=dict(Counter(entry.kind for entry in some).most_common()),
        last=some[0].at,
        summary=some[0].summary,
    )
