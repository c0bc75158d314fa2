"""A rank that receives from others in turn, ``for w in range(1, size): recv(source=w)``, and waits for one of them that
is past what it should have sent, as those are that were served before.

The messages of the earlier ones came, in this very loop. So the loop is right, and the one that it waits for did not
send, or sent with another tag.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..stacks.call_peers import peer_names
from ..text.late import late
from . import findings as f
from .case import Case, finding_on, in_op, op_of, ranks_of, where_held
from .confidence import Ground, sure
from .findings import Finding
from .position import operation_key
from .view import RankView

# Of a comprehension, which counts upwards
_IN_TURN = late(r"\bfor (\w{1,40}) in range\((?:[^(),]{1,60}|[^(),]{1,60}, ?[^(),]{1,60})\)")


def find(case: Case, waiter: RankView, peer: RankView, views: Iterable[RankView]) -> Finding | None:
    """The finding on the one that did not send; None where none was served before it."""
    if waiter.place.op not in ("recv", "irecv") or not _goes_through(waiter):
        return None
    there = [v for v in views if v.rank != waiter.rank and _is_beside(v, peer)]
    served = [view for view in there if view.rank < peer.rank]
    lower = [rank for rank in range(peer.rank) if rank != waiter.rank]
    if not served or ranks_of(served) != tuple(lower):
        return None
    others = tuple(view.rank for view in there if view is not peer)
    story = f.UnmatchedPair(
        waiter.rank, op_of([waiter]), peer.rank, op_of([peer]), others, ranks_of(served)
    )
    confidence = sure(Ground.SERVED_IN_TURN)
    finding = finding_on(case, "p2p_unmatched", [peer], story, confidence=confidence)
    finding.where = where_held(case, [waiter], waiter)
    finding.clues = [in_op([waiter]), in_op(there)]
    return finding


def _goes_through(view: RankView) -> bool:
    """Whether its line receives from one rank after the other, upwards as loops do."""
    frame = view.place.frame
    if frame is None:
        return False
    turn = _IN_TURN.search(frame.code)
    variable = turn[1] if turn is not None else frame.counts
    return bool(variable) and variable in peer_names(frame.code)


def _is_beside(view: RankView, peer: RankView) -> bool:
    """Whether it waits in the very call that the other one is in."""
    same = operation_key(view) == operation_key(peer)
    return view.waits and same and str(view.place.frame) == str(peer.place.frame)
