"""Two stages of a pipeline that wait for each other: how much the other stages passed on decides.

Each stage passes on what it gets. Where as many sends went over all other links of that direction,
received in full, and one side of a link has called as many of its half and the other one fewer
before it turned to something else, the other one made other calls. Where one side of a link has
called one transfer more than its peer, and all other links have had as many as the peer, that side
made one too many. Where several ranks wait for transfers of one that has gone on to a collective, that one
is named without any counts. And where one stage sends to another, and a third one waits for the same number from it,
the one between these has not passed on what both expect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import structs

from ...model.operations import P2P, RankOps
from ..confidence import Ground, sure
from ..findings import Finding, NeverPosted
from .divergence import Divergence
from .facts import nodes_of, op_of, where_of
from .keys import Counter, Transfers
from .order import Link, divergence_finding, link_clue
from .scene import Scene
from .waits import WaitGraph

_OTHER_LINKS = 2  # at least
_SHOWN = 4  # waits for one rank
Numbers = Callable[[int], Mapping[Counter, int]]


def stopped_passing_on(scene: Scene, cycle: list[Link]) -> Finding | None:
    """The stage of a ring of two that sent or received fewer than all others; None where that is not
    shown.
    """
    if len(cycle) != 2:
        return None
    short = [link for link in cycle if _peer_called_fewer(scene, link)]
    if len(short) != 1:
        return None
    return _never_posted(scene, short[0], Ground.OTHER_STAGES, cycle)


def awaited_by_more(scene: Scene, graph: WaitGraph, cycle: list[Link]) -> Finding | None:
    """Of two ranks of which one went on to a collective and the other waits for a transfer of it: the
    first, where other ranks wait for one of it, too. None of these need have made other calls.
    """
    if len(cycle) != 2:
        return None
    transfers = [link for link in cycle if link.instance.key.transfer is not None]
    if len(transfers) != 1 or not _is_in_collectives(scene, transfers[0].whom):
        return None
    [link] = transfers
    asked = [i for i in graph.instances if i.key.transfer is not None and i.targets == [link.whom]]
    waiters = sorted({rank for instance in asked for rank in instance.waiters})
    if len(waiters) < _OTHER_LINKS:
        return None
    shown = [Link(i.waiters[0], i, link.whom) for i in asked[:_SHOWN] if i.waiters]
    return _never_posted(scene, link, Ground.AWAITED_BY_MORE, shown)


def between_two(scene: Scene, graph: WaitGraph, cycle: list[Link]) -> Finding | None:
    """Of two ranks that wait for transfers of one another: the one that a further rank waits for, too, to be passed on
    the very message that the other one sends, or to take on the one that it waits for.
    """
    if len(cycle) != 2 or any(link.instance.key.transfer is None for link in cycle):
        return None
    found = [link for link in cycle if _is_passed_by(graph, link, cycle)]
    return _never_posted(scene, found[0], Ground.BETWEEN_TWO, cycle) if len(found) == 1 else None


def _is_passed_by(graph: WaitGraph, link: Link, cycle: list[Link]) -> bool:
    """Whether a rank outside of the ring waits for `link.whom` in the next link of the same direction, under the
    same number.
    """
    own, number = link.instance.key.counter, link.instance.key.number
    ring = {one.rank for one in cycle}
    if not isinstance(own, Transfers):
        return False
    for other in graph.instances:
        counter = other.key.counter
        if (
            not isinstance(counter, Transfers)
            or other.key.number != number
            or other.targets != [link.whom]
        ):
            continue
        passed = own.destination == link.whom == counter.source
        taken = own.source == link.whom == counter.destination
        if (passed or taken) and not ring.intersection(other.waiters) and other.waiters:
            return True
    return False


def _never_posted(scene: Scene, link: Link, ground: Ground, shown: Sequence[Link]) -> Finding:
    """That the rank which another one waits for did not call its half of the transfer."""
    sent = scene.find(link.rank, link.instance.key) or link.instance.sample
    culprit = [link.whom]
    return Finding(
        kind="p2p_unmatched",
        ranks=culprit,
        story=NeverPosted(op_of(scene, sent, link.rank), link.rank),
        confidence=sure(ground),
        nodes=nodes_of(scene, culprit),
        where=where_of(scene, link.instance, sent, culprit),
        clues=[link_clue(scene, one) for one in shown],
    )


def one_too_many(scene: Scene, cycle: list[Link]) -> Finding | None:
    """The stage of a ring of two that called one transfer more than all other links had; None where
    that is not shown.
    """
    if len(cycle) != 2:
        return None
    beyond = [link for link in cycle if _called_one_more(scene, link)]
    if len(beyond) != 1:
        return None
    [link] = beyond
    mine = scene.find(link.rank, link.instance.key)
    theirs = next(iter(scene.frontier(link.whom).active), None)
    if mine is None or theirs is None:
        return None
    position = len(scene.ops[link.rank].operations) - 1
    parted = Divergence(link.rank, link.whom, "extra", mine, theirs=theirs, position=position)
    finding = divergence_finding(scene, {link.rank: parted}, cycle)
    return structs.replace(finding, confidence=sure(Ground.OTHER_STAGES), against=[])


def _called_one_more(scene: Scene, link: Link) -> bool:
    """Whether a rank has called one transfer more than its peer, which called as many of them as
    every other link of that direction had, on both sides.
    """
    counter = link.instance.key.counter
    if not isinstance(counter, Transfers) or not _are_counted(scene):
        return False
    if {counter.source, counter.destination} != {link.rank, link.whom}:
        return False
    mine = scene.posted(link.rank).get(counter, 0)
    theirs = scene.posted(link.whom).get(counter, 0)
    others = _other_links(scene, counter, scene.posted)
    whole = all(pair == (theirs, theirs) for pair in others)
    return mine == theirs + 1 and whole and len(others) >= _OTHER_LINKS


def _peer_called_fewer(scene: Scene, link: Link) -> bool:
    """Whether a rank has called its half of a link as often as all stages called theirs, and its peer
    the other half less often.
    """
    key = link.instance.key
    counter = key.counter
    if key.transfer is None or not isinstance(counter, Transfers):
        return False
    if {counter.source, counter.destination} != {link.rank, link.whom} or not _are_counted(scene):
        return False
    return any(_fewer(scene, link, counter, by) for by in (scene.posted, scene.called))


def _fewer(scene: Scene, link: Link, counter: Transfers, by: Numbers) -> bool:
    mine, theirs = by(link.rank).get(counter, 0), by(link.whom).get(counter, 0)
    others = _other_links(scene, counter, by)
    whole = all(pair == (mine, mine) for pair in others)
    if counter.destination == link.rank and _is_in_collectives(scene, link.whom):
        # A stage that waits to receive has not sent on yet: what all ask for is what all were to get.
        whole = all(asked == mine and sent in (theirs, mine) for sent, asked in others)
    return theirs < mine and whole and len(others) >= _OTHER_LINKS


def _is_in_collectives(scene: Scene, rank: int) -> bool:
    active = scene.frontier(rank).active
    return bool(active) and not any(op.op in P2P for op in active)


def _are_counted(scene: Scene) -> bool:
    """Whether the numbers of all ranks' transfers count from the first one. Some recorders number
    those that are left.
    """
    return all(not ops.overwritten or _counts_all(ops) for ops in scene.ops.values())


def _counts_all(ops: RankOps) -> bool:
    numbers = [op.seq for op in ops.operations if op.op in P2P]
    return bool(numbers) and min(numbers) > len(numbers)


def _other_links(scene: Scene, counter: Transfers, by: Numbers) -> list[tuple[int, int]]:
    """(sends, receives) of each other pair of neighbours in the direction of this one."""
    hop = counter.destination - counter.source
    found: list[tuple[int, int]] = []
    for source in scene.ops:
        destination = source + hop
        if source == counter.source or destination not in scene.ops:
            continue
        link = Transfers(counter.group, source, destination)
        sent, received = by(source).get(link, 0), by(destination).get(link, 0)
        if sent or received:
            found.append((sent, received))
    return found
