"""Two ranks that wait for one another in sends and receives: whose round is another one?

Between two collectives of the job's widest group a pipeline makes one round of sends and receives, and
rounds repeat. Where a ramp-up, another schedule or an evaluation begins, the rounds of all stages change at
once. One rank that repeats its earlier rounds while all others make new ones has missed that change; one
that makes a new round while all others repeat theirs has made a change of its own.
"""

from __future__ import annotations

from typing import Literal

from ...model.operations import STORE
from ..confidence import Ground, sure
from ..findings import Finding, OtherRound
from .facts import nodes_of, where_of
from .history import History, Token
from .keys import P2P_NAMES
from .order import Link, both_sides, link_clue
from .rhythm import break_of, keeps_rhythm
from .scene import Scene

Round = list[Token]
How = Literal["kept", "changed", "early", "none"]
_OTHERS = 2  # ranks that agree, at least
_MOST = 64  # ranks that are compared
_LATEST = 4  # rounds before the last one


def other_round(scene: Scene, cycle: list[Link]) -> Finding | None:
    """The one of a pair whose round differs from that of all ranks; None where none, or both, do."""
    sides = both_sides(scene, cycle)
    if len(sides) < 2 or len(scene.ops) > _MOST:
        return None
    rounds = {rank: _last_round(scene, rank) for rank in sorted(scene.ops)}
    told = {rank: how for rank, how in rounds.items() if how != "none"}
    alone = [rank for rank in told if list(told.values()).count(told[rank]) == 1]
    others = [rank for rank in told if rank not in alone]
    if len(alone) != 1 or len(others) < _OTHERS or "early" in told.values():
        return None
    [rank] = alone
    if rank not in {one for one, _ in sides} or len({told[other] for other in others}) > 1:
        return None
    own = next(link for link in cycle if link.rank == rank)
    return Finding(
        kind="p2p_unmatched",
        ranks=[rank],
        story=OtherRound(told[rank] == "kept", tuple(others), sides),
        confidence=sure(Ground.OTHER_ROUND),
        nodes=nodes_of(scene, [rank]),
        where=where_of(scene, own.instance, None, [rank]),
        clues=[link_clue(scene, link) for link in cycle],
    )


def _last_round(scene: Scene, rank: int) -> How:
    """How the round that a rank is in compares with those before: "early" where it has not got far
    enough to tell, "none" where it makes no rounds.
    """
    history = History(scene, rank)
    if history.only_active:
        return "none"
    *before, now = _rounds(history)
    earlier = [calls for calls in before if calls][-_LATEST:]
    if len(earlier) < 2 or not now:
        return _by_rhythm(history)
    if earlier[-1] != earlier[-2]:
        return "early"  # they differ anyway
    if all(calls[: len(now)] != now for calls in earlier):
        return "changed"
    return "kept" if 2 * len(now) >= len(earlier[-1]) else "early"


def _by_rhythm(history: History) -> How:
    """The same without collectives between the rounds. A call that was never made before breaks no
    round: after its warm-up a stage waits for its first gradient.
    """
    if keeps_rhythm(history):
        return "kept"
    left = break_of(history)
    made_before = left is not None and history.tokens[left[0]] in history.tokens[: left[0]]
    return "changed" if made_before else "none"


def _rounds(history: History) -> list[Round]:
    """The sends and receives between the collectives of the widest group, the latest round last; the
    first one only where the records begin with it.
    """
    calls = [
        (token, op.op in P2P_NAMES)
        for token, op in zip(history.tokens, history.operations, strict=True)
        if op.op not in STORE
    ]
    widest = max((_size(token) for token, transfer in calls if not transfer), default=0)
    found: list[Round] = [[]]
    for token, transfer in calls:
        if transfer:
            found[-1].append(token)
        elif _size(token) == widest:
            found.append([])
    return found[1:] if len(found) > 1 else [[]]


def _size(token: Token) -> int:
    return int(token[0][0]) if token[0] else 0
