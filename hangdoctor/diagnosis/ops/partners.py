"""One rank that exchanges tensors with other partners than the ranks around it.

In a ring, all ranks call the same lines again and again: a batch of sends to some ranks and receives
from others, waited for together. Where one of them follows another plan, such as an older one, it is
a party of every transfer that the other side does not make. That says something only where plans are
kept: in an exchange whose partners change from call to call, ranks that are a call apart look so too.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, pairwise

from msgspec import Struct

from ...model.operations import Operation
from .. import findings as f
from ..confidence import Ground, sure
from ..findings import Clue, Finding, OtherPartners
from .facts import nodes_of, op_of, place, waiters_of, where_of
from .keys import P2P_NAMES, SENDS, key_of
from .order import Link
from .scene import Scene
from .waits import Instance, WaitGraph

_LOOKED_AT = 256  # newest records of a rank
_RANKS = 1024  # more are not compared
_CHANGES = 4  # of so many batches at most one has other partners than the one before
_PARTNERS = 3  # so many that do not agree with the rank; two, if it waits both ways
_SHOWN = 8  # pieces of evidence


class Exchange(Struct, frozen=True):
    """One batch: its calls, from which lines they were made, and with which ranks."""

    operations: tuple[Operation, ...]
    sites: frozenset[str]
    sends: frozenset[int]
    receives: frozenset[int]

    def answers(self, op: Operation, rank: int) -> bool:
        """Whether it has the other side of such a transfer of `rank`."""
        return rank in (self.receives if op.op in SENDS else self.sends)


class OneSided(Struct, frozen=True):
    """A transfer of a rank that its peer does not make, in its own exchange or before."""

    rank: int
    peer: int
    op: Operation


def other_partners(scene: Scene, graph: WaitGraph, ring: Sequence[int]) -> Finding | None:
    """The one rank of a ring of waits that is a party of all transfers that only one side makes."""
    batches = {rank: _batches(scene, rank) for rank in _around(scene, ring)}
    last = {rank: own[-1] for rank, own in batches.items() if own}
    if not last or not _keep_partners(list(batches.values())):
        return None
    found = _one_sided(scene, last)
    culprit = _in_all(found or [])
    if found is None or culprit not in ring:
        return None
    return _finding(scene, graph, culprit, found=found, last=last)


def one_of_pair(scene: Scene, instance: Instance, pair: Sequence[int]) -> Finding | None:
    """Of two ranks that disagree in a transfer, as in its tag, the one that has transfers with
    further ranks which these do not make, and leaves out those that further ranks make with it;
    None where the other one has such, too.
    """
    apart = {rank: _unshared(scene, rank, pair) for rank in pair}
    with_any = [rank for rank, (own, awaited) in apart.items() if own or awaited]
    if len(with_any) != 1 or not all(apart[with_any[0]]):
        return None
    own, awaited = apart[with_any[0]]
    return _told(scene, with_any[0], own, awaited, instance)


def with_wrong_rank(scene: Scene, cycle: Sequence[Link]) -> Finding | None:
    """Of a rank in a transfer with one that is in a collective with all: it has that transfer with
    the wrong one, where a third waits in one with it.
    """
    transfers = [link for link in cycle if link.instance.key.transfer is not None]
    if len(cycle) != 2 or len(transfers) != 1:
        return None
    [link] = transfers
    own, awaited = _unshared(scene, link.rank, [link.rank])
    if not own or not awaited or len({one.peer for one in own}) > 1:
        return None
    return _told(scene, link.rank, own, awaited, link.instance)


def _unshared(
    scene: Scene, rank: int, pair: Sequence[int]
) -> tuple[list[OneSided], list[OneSided]]:
    """Its pending transfers with further ranks that have none with it, and theirs with it."""
    mine = _pending(scene, rank)
    partners = {op.peer for op in mine}
    own = [
        OneSided(rank, op.peer, op)
        for op in mine
        if op.peer not in pair and scene.known(op.peer) and not _meets(scene, op.peer, rank)
    ]
    awaited = [
        OneSided(other, rank, op)
        for other in scene.ops
        if other not in pair and other not in partners
        for op in _pending(scene, other)
        if op.peer == rank
    ]
    return own, awaited


def _pending(scene: Scene, rank: int) -> list[Operation]:
    return [op for op in scene.frontier(rank).open if op.op in P2P_NAMES and op.peer >= 0]


def _meets(scene: Scene, rank: int, other: int) -> bool:
    return any(op.peer == other for op in _pending(scene, rank))


def _around(scene: Scene, ring: Sequence[int]) -> list[int]:
    """The ranks of the ring, and those that transfers which are pending connect with them."""
    peers: dict[int, set[int]] = {rank: set() for rank in scene.ops}
    for rank, frontier in scene.frontiers.items():
        known = {op.peer for op in frontier.open if op.op in P2P_NAMES} & peers.keys()
        peers[rank] |= known
        for peer in known:
            peers[peer].add(rank)
    found, new = set(ring), set(ring)
    while new and len(found) <= _RANKS:
        new = set().union(*(peers[rank] for rank in new)) - found
        found |= new
    return sorted(found) if len(found) <= _RANKS else []


def _batches(scene: Scene, rank: int) -> list[Exchange]:
    """The exchanges of a rank that waits in its last one, oldest first; none of another rank."""
    ops, blocking = scene.ops[rank], scene.frontier(rank).blocking
    whole = not (ops.only_active or ops.runs_ahead)
    if not whole or rank in scene.held or rank in scene.moving or not blocking:
        return []
    newest = list(islice(reversed(ops.operations), _LOOKED_AT))[::-1]
    own = [op for op in newest if op.thread == blocking[0].thread]
    groups = _grouped(own)
    if not groups or not any(op is own_op for own_op in groups[-1] for op in blocking):
        return []
    exchanges = [_exchange(group) for group in groups]
    last = exchanges[-1]
    if not (last.sends and last.receives) or min(last.sends | last.receives) < 0:
        return []
    return [e for e in exchanges if e.sites == last.sites]


def _grouped(operations: Sequence[Operation]) -> list[list[Operation]]:
    """Sends and receives that were all begun before one of them had ended; the last is empty where
    something else came after it.
    """
    groups: list[list[Operation]] = []
    for op in operations:
        if op.op not in P2P_NAMES:
            groups.append([])
        elif groups and groups[-1] and all(_lasted_until(o, op) for o in groups[-1]):
            groups[-1].append(op)
        else:
            groups.append([op])
    if not groups or not groups[-1]:
        return []
    return [group for group in groups if group]


def _lasted_until(op: Operation, later: Operation) -> bool:
    return op.state != "done" or op.left_s > later.entered_s


def _exchange(group: list[Operation]) -> Exchange:
    return Exchange(
        operations=tuple(group),
        sites=frozenset(op.site for op in group),
        sends=frozenset(op.peer for op in group if op.op in SENDS),
        receives=frozenset(op.peer for op in group if op.op not in SENDS),
    )


def _keep_partners(batches: Sequence[Sequence[Exchange]]) -> bool:
    """Whether the ranks exchange with the same ranks from call to call, but for a new plan."""
    pairs = [pair for own in batches for pair in pairwise(own)]
    changes = sum((a.sends, a.receives) != (b.sends, b.receives) for a, b in pairs)
    return _CHANGES * changes <= len(pairs)


def _one_sided(scene: Scene, last: dict[int, Exchange]) -> list[OneSided] | None:
    """Transfers that the peer has in no exchange, the first of each peer and direction; None where a
    peer is elsewhere, and may have left one out.
    """
    found: dict[tuple[int, int, bool], OneSided] = {}
    for rank, exchange in last.items():
        for op in exchange.operations:
            if _is_posted(scene, rank, op):
                continue
            theirs = last.get(op.peer)
            if theirs is None or theirs.sites != exchange.sites:
                return None
            if not theirs.answers(op, rank):
                found.setdefault((rank, op.peer, op.op in SENDS), OneSided(rank, op.peer, op))
    return list(found.values())


def _is_posted(scene: Scene, rank: int, op: Operation) -> bool:
    """Whether the peer has called the other side."""
    key = key_of(op, rank)
    known = op.peer in scene.ops and scene.known(op.peer)
    return known and scene.posted(op.peer).get(key.counter, -1) >= key.number


def _in_all(found: Sequence[OneSided]) -> int:
    """The one rank that is in all of them, waits for others and is awaited itself; -1 without one."""
    pairs = [{one.rank, one.peer} for one in found]
    common = set.intersection(*pairs) if pairs else set()
    if len(common) != 1:
        return -1
    [rank] = common
    own = [one.op.op in SENDS for one in found if one.rank == rank]
    awaited = [one for one in found if one.peer == rank]
    partners = set().union(*pairs) - common
    enough = len(partners) >= _PARTNERS or len(set(own)) > 1
    return rank if own and awaited and enough else -1


def _finding(
    scene: Scene,
    graph: WaitGraph,
    rank: int,
    *,
    found: list[OneSided],
    last: dict[int, Exchange],
) -> Finding:
    own = [one for one in found if one.rank == rank]
    awaited = [one for one in found if one.peer == rank]
    keys = {key_of(one.op, one.rank) for one in awaited}
    held = next((i for i in graph.instances if i.waiters and i.key in keys), None)
    finding = _told(scene, rank, own, awaited, held)
    finding.clues = [_clue(scene, one, last[one.peer]) for one in [*own, *awaited][:_SHOWN]]
    return finding


def _told(
    scene: Scene,
    rank: int,
    own: list[OneSided],
    awaited: list[OneSided],
    held: Instance | None,
) -> Finding:
    finding = Finding(
        kind="p2p_unmatched",
        ranks=[rank],
        story=OtherPartners(
            op_of(scene, own[0].op, rank),
            sends_to=tuple(sorted({one.peer for one in own if one.op.op in SENDS})),
            receives_from=tuple(sorted({one.peer for one in own if one.op.op not in SENDS})),
            awaited_by=tuple(sorted({one.rank for one in awaited})),
        ),
        confidence=sure(Ground.OTHER_PARTNERS),
        nodes=nodes_of(scene, [rank]),
        where=where_of(scene, held, None if held else own[0].op, [rank]),
        waiters=waiters_of(scene, held),
        clues=[
            Clue("ops", (one.rank,), f.WaitsFor(op_of(scene, one.op, one.rank), one.peer))
            for one in [*own, *awaited][:_SHOWN]
        ],
    )
    return place(scene, finding)


def _clue(scene: Scene, one: OneSided, theirs: Exchange) -> Clue:
    to, of = tuple(sorted(theirs.sends)), tuple(sorted(theirs.receives))
    fact = f.Unreturned(op_of(scene, one.op, one.rank), one.peer, sends_to=to, receives_from=of)
    return Clue("ops", (one.rank,), fact)
