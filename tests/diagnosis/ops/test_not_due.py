"""Ranks that average with a neighbour in turn: the last one of an odd number has none at first, and
has left no call out.
"""

from __future__ import annotations

from hangdoctor.diagnosis.ops import OpsEvidence, diagnose_ops
from hangdoctor.model.operations import Operation
from tests.support.ops_programs import causes
from tests.support.ops_records import done, entered, evidence, rank_ops

WORLD = list(range(5))
MIX, SPREAD = "mix (/app/gossip.py:38)", "spread (/app/main.py:30)"


class Program:
    """The calls of one rank, with the number of each in its group."""

    def __init__(self) -> None:
        self.calls: list[Operation] = []
        self._made: dict[tuple[int, ...], int] = {}

    def call(self, members: list[int], site: str, last: bool = False) -> None:
        key = tuple(members)
        number = self._made[key] = self._made.get(key, 0) + 1
        self.calls.append((entered if last else done)(members, number, site=site, shapes="[4]"))


def gossip() -> OpsEvidence:
    """Pairs 0-1 and 2-3, then the other pairs, and so on, with a collective of all between; at last
    a ring, in which each waits for its right neighbour.
    """
    programs = [Program() for _ in WORLD]
    for turn in range(6):
        pairs = [[0, 1], [2, 3]] if turn % 2 == 0 else [[1, 2], [3, 4]]
        for rank, own in enumerate(programs):
            for pair in pairs:
                if rank in pair:
                    own.call(pair, MIX)
            own.call(WORLD, SPREAD)
    ring = [sorted([rank, (rank + 1) % 5]) for rank in WORLD]
    for rank, own in enumerate(programs):
        own.call(ring[rank], MIX, last=True)
    ops = [rank_ops(rank, 5, own.calls, *ring) for rank, own in enumerate(programs)]
    return evidence(ops, ops)


def test_a_ring_of_neighbours_names_none_of_them() -> None:
    found = causes(diagnose_ops(gossip()))
    assert all("skipped" not in cause.summary for cause in found), found
    assert all(len(cause.ranks) != 1 for cause in found), found
