"""Ranks of which each waits for the one before in a send or receive, up to one that waits for another
rank, by the source lines in the errors that ended their waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...model.frame import Frame
from ..case import Case
from ..confidence import Ground, sure
from ..findings import Apart, Finding, InOther
from ..transfer_lines import sides_of_ring

_PEERS = {"send": "dst", "recv": "src"}
_ENOUGH = 3


def end_of_chain(case: Case, frames: Mapping[int, Sequence[Frame]]) -> Finding | None:
    """The rank that all others wait for, directly or through one another, and that is itself in
    another call, whose line does not show with which rank; None where there is none such.
    """
    views = {view.rank: view for view in case.waiting}
    peers = {rank: peer for rank, own in frames.items() if (peer := _peer(own)) >= 0}
    ends = set(frames) - set(peers)
    if len(frames) < _ENOUGH or len(ends) != 1 or set(views) != set(frames):
        return None
    [end] = ends
    transfers = all(view.place.kind == "p2p" for view in views.values())
    if not transfers or not all(_leads_to(end, rank, peers) for rank in peers):
        return None
    sides = sides_of_ring(list(views.values()))
    alone = next((op for ranks, op in sides if ranks == (end,)), None)
    rest = [(ranks, op) for ranks, op in sides if end not in ranks]
    if alone is None or len(rest) != 1 or rest[0][1].name == alone.name:
        return None
    [(others, theirs)] = rest
    return Finding(
        kind="p2p_unmatched",
        ranks=[end],
        story=InOther(Apart.SMALLER_SIDE, alone, others, theirs),
        confidence=sure(Ground.FEW_ELSEWHERE),
        nodes=[views[end].node] if views[end].node else [],
        frame=alone.frame,
    )


def _peer(frames: Sequence[Frame]) -> int:
    """With which rank its send or receive is; -1 where the line does not show it."""
    found = (f.values.get(_PEERS[f.name], -1) for f in frames if f.name in _PEERS)
    return next((peer for peer in found if peer >= 0), -1)


def _leads_to(end: int, rank: int, peers: Mapping[int, int]) -> bool:
    seen: set[int] = set()
    while rank in peers and rank not in seen:
        seen.add(rank)
        rank = peers[rank]
    return rank == end
