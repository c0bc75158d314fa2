"""The layers of each pipeline stage, as DeepSpeed's type:transformer|embedding deals them out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise


@dataclass(frozen=True)
class Stage:
    """What a stage has: transformer layers, and of the ends embedding, positions, norm, output."""

    layers: int
    embedding: bool = False
    positions: bool = False
    norm: bool = False
    output: bool = False


def can_split(layers: int, pp: int) -> bool:
    """Whether the trainer takes so many stages: even ones, with or without the embeddings."""
    return pp <= layers and (layers % pp == 0 or (layers + 2) % pp == 0)


@cache
def stages(layers: int, pp: int) -> tuple[Stage, ...]:
    """The stages in order. The pipeline's list is embedding, positions, layers, norm, output; the
    embeddings count like a layer each, positions and norm as nothing.
    """
    weights = [1, 0, *[1] * layers, 0, 1]
    bounds = balanced(weights, pp)
    found = []
    for first, end in pairwise(bounds):
        own = range(first, end)
        found.append(
            Stage(
                layers=sum(2 <= place < 2 + layers for place in own),
                embedding=0 in own,
                positions=1 in own,
                norm=layers + 2 in own,
                output=layers + 3 in own,
            )
        )
    return tuple(found)


def balanced(weights: list[int], parts: int) -> list[int]:
    """Where each of `parts` runs of `weights` begins, and the end: smallest difference between the
    heaviest and the lightest; of equals the one that DeepSpeed's table finds last.
    """
    count, infinite = len(weights), float("inf")
    before = [0]
    for weight in weights:
        before.append(before[-1] + weight)
    # rows[j][i]: heaviest and lightest of j runs over the first i, and where the last one begins
    row = [(0.0, infinite, 0)] + [(infinite, infinite, 0)] * count
    rows = [row]
    for part in range(1, parts + 1):
        last = rows[-1]
        row = [(infinite, infinite, 0)] * (part if part <= count else count + 1)
        row += [_best(last, before, end) for end in range(part, count + 1)]
        rows.append(row)
    bounds = [count]
    for part in range(parts, 0, -1):
        bounds.append(rows[part][bounds[-1]][2])
    return bounds[::-1]


def _best(
    last: list[tuple[float, float, int]], before: list[int], end: int
) -> tuple[float, float, int]:
    found, least = (float("inf"), float("inf"), 0), float("inf")
    for start in range(end):
        if last[start][0] == float("inf"):
            continue
        own = before[end] - before[start]
        heaviest, lightest = max(last[start][0], own), min(last[start][1], own)
        if heaviest - lightest <= least:
            least, found = heaviest - lightest, (heaviest, lightest, start)
    return found
