"""A rank in a send or receive whose peer is in a collective with all others, which waits for that rank.

Either the peer did not make its half, or the rank makes one that none expects. Which of the two stacks do
not show: each of them is the minority by one view of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import findings as f
from . import served_in_turn
from .case import Case, finding_on, in_op, op_of, where_held
from .confidence import Ground, sure
from .findings import Against, Finding, Why
from .stackgraph import End, Transfer
from .view import RankView


def find(case: Case, end: End, views: Mapping[int, RankView]) -> Finding | None:
    """The finding on both, where the waits end in these two."""
    transfers = [one for one in end.instances if isinstance(one.key, Transfer)]
    rest = [one for one in end.instances if one not in transfers]
    if len(transfers) != 1 or len(rest) != 1 or len(end.ranks) != 2:
        return None
    [waiter], [peer] = transfers[0].present, transfers[0].absent
    held = rest[0]
    if held.absent != [waiter] or peer not in held.present or views[peer].place.kind == "p2p":
        return None
    served = served_in_turn.find(case, views[waiter], views[peer], views.values())
    return served or _finding(case, views[waiter], views[peer], [views[r] for r in held.present])


def _finding(case: Case, waiter: RankView, peer: RankView, held: Sequence[RankView]) -> Finding:
    others = tuple(view.rank for view in held if view is not peer)
    story = f.UnmatchedPair(waiter.rank, op_of([waiter]), peer.rank, op_of([peer]), others)
    both = sorted((waiter, peer), key=lambda view: view.rank)
    confidence = sure(Ground.UNMATCHED_PAIR)
    finding = finding_on(case, "p2p_unmatched", both, story, confidence=confidence)
    finding.where = where_held(case, [waiter], waiter)
    finding.clues = [in_op([waiter]), in_op(held)]
    finding.against = [Against("in_communication", (waiter.rank, peer.rank), Why.NOT_HALVES)]
    return finding


def is_half(view: RankView) -> bool:
    """Whether it is in a send or receive with a peer that is not known."""
    return view.place.kind == "p2p" and view.place.peer < 0
