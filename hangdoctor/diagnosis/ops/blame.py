"""Who left the program: ranks whose history differs from that of most ranks of the same role."""

from __future__ import annotations

from collections.abc import Iterable

from .history import Divergence, History, compare, own_divergence
from .roles import references, working_layout
from .scene import Scene

_SUSPECTS = 256  # more are not compared: a fault that moves so many is none of single ranks


def blame(scene: Scene, suspects: Iterable[int]) -> dict[int, Divergence]:
    """Of `suspects`, those that most of their like disagree with, each with its earliest divergence."""
    ranks = [r for r in suspects if r in scene.ops and scene.ops[r].operations][:_SUSPECTS]
    for sites in (False, True):
        found = _by_majority(scene, ranks, sites)
        if found and len(found) < max(2, len(ranks)):
            return found
    return {}


def _by_majority(scene: Scene, ranks: list[int], sites: bool) -> dict[int, Divergence]:
    layout = working_layout(scene)
    histories: dict[int, History] = {}
    suspects = set(ranks)
    found: dict[int, Divergence] = {}
    tied: dict[int, Divergence] = {}

    def history(rank: int) -> History:
        if rank not in histories:
            histories[rank] = History(scene, rank)
        return histories[rank]

    for rank in ranks:
        against = total = 0
        first: Divergence | None = None
        for other, weight in references(scene, layout, rank, suspects):
            total += weight
            difference = compare(history(rank), history(other), sites)
            if difference is not None:
                against += weight
                first = first or difference
        if first is not None and 2 * against > total:
            found[rank] = first
        elif first is not None and 2 * against == total:
            tied[rank] = first
    if len(found) == 2 and _accuse_each_other(found):
        tied, found = found, {}
    return found or _by_own_rhythm(history, tied)


def _accuse_each_other(found: dict[int, Divergence]) -> bool:
    return all(d.reference in found for d in found.values())


def _by_own_rhythm(history: object, tied: dict[int, Divergence]) -> dict[int, Divergence]:
    """Two that differ from each other only: the one that left its own rhythm of iterations did it."""
    out = {rank: d for rank, d in tied.items() if callable(history) and own_divergence(history(rank)) is not None}
    return out if len(out) < len(tied) else {}
