"""Ranks that look for their store in different places, and belong to one job all the same: what
started them, their script and their world size are the same, and no rank is there twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from ..text.late import late

Sizes = Iterable[tuple[int, int]]  # (rank, world size)
_PLACE = late(r"[^:/]+:\d+|\[?[0-9a-f:]+\]?:\d+")  # the key of a job by address and port


class Rank(Protocol):
    """What is read of a rank process."""

    ppid: int
    rank: int
    world_size: int
    argv: list[str]
    environ: dict[str, str]


R = TypeVar("R", bound=Rank)
Name = tuple[str, str]
Origin = tuple[int, int, str, str]  # parent, world size, address, script


def is_place(key: str) -> bool:
    """Whether a job is called by the address and port of its store."""
    return _PLACE.fullmatch(key) is not None


def complement(groups: Sequence[Sizes]) -> bool:
    """Whether ranks of several groups can be those of one job: one world size, and none twice."""
    ranks = [rank for group in groups for rank, _ in group]
    worlds = {world for group in groups for _, world in group}
    return len(worlds) == 1 and len(set(ranks)) == len(ranks) <= worlds.pop()


def joined(groups: Mapping[Name, list[R]]) -> dict[Name, list[R]]:
    """The groups (by job's key and user), those of one job in one: under the key that most have."""
    alike: dict[tuple[str, Origin], list[Name]] = defaultdict(list)
    for name, ranks in groups.items():
        origins = {_origin(rank) for rank in ranks}
        if is_place(name[0]) and len(origins) == 1 and ranks[0].ppid > 1:
            alike[name[1], origins.pop()].append(name)
    found = dict(groups)
    for names in alike.values():
        sizes = [[(r.rank, r.world_size) for r in groups[name]] for name in names]
        if len(names) > 1 and complement(sizes):
            most = max(names, key=lambda name: (len(groups[name]), -_first(groups[name])))
            found[most] = [rank for name in names for rank in found.pop(name)]
    return found


def _first(ranks: Sequence[Rank]) -> int:
    return min(rank.rank for rank in ranks)


def _origin(rank: Rank) -> Origin:
    """What ranks of one job have in common."""
    return rank.ppid, rank.world_size, rank.environ.get("MASTER_ADDR", ""), _script(rank.argv)


def _script(argv: Sequence[str]) -> str:
    """The script that a command line names, whatever its arguments are."""
    found = (word for word in argv if word.endswith(".py"))
    return Path(next(found, " ".join(argv[:3]))).name
