"""Two stages of a pipeline that wait for each other: how much the other stages passed on decides.

Each stage passes on what it gets. Where as many sends went over all other links of that direction,
received in full, and one stage has sent as many and the next one has received fewer before it
turned to something else, the next one made other calls. Where one side of a link has called one
transfer more than its peer, and all other links have had as many as the peer, that side made one
too many.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import structs

from ..confidence import Ground, sure
from ..findings import Finding, NeverPosted
from .divergence import Divergence
from .facts import nodes_of, op_of, where_of
from .keys import Transfers
from .order import Link, divergence_finding, link_clue
from .scene import Scene

_OTHER_LINKS = 2  # at least


def stopped_receiving(scene: Scene, cycle: list[Link]) -> Finding | None:
    """The stage of a ring of two that received fewer than all others; None where that is not shown."""
    if len(cycle) != 2:
        return None
    short = [link for link in cycle if _received_fewer(scene, link)]
    if len(short) != 1:
        return None
    [link] = short
    sent = scene.find(link.rank, link.instance.key) or link.instance.sample
    culprit = [link.whom]
    return Finding(
        kind="p2p_unmatched",
        ranks=culprit,
        story=NeverPosted(op_of(scene, sent, link.rank), link.rank),
        confidence=sure(Ground.OTHER_STAGES),
        nodes=nodes_of(scene, culprit),
        where=where_of(scene, link.instance, sent, culprit),
        clues=[link_clue(scene, one) for one in cycle],
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
    if not isinstance(counter, Transfers) or not _complete(scene, scene.ops):
        return False
    if {counter.source, counter.destination} != {link.rank, link.whom}:
        return False
    mine = scene.posted(link.rank).get(counter, 0)
    theirs = scene.posted(link.whom).get(counter, 0)
    others = _other_links(scene, counter)
    whole = all(pair == (theirs, theirs) for pair in others)
    return mine == theirs + 1 and whole and len(others) >= _OTHER_LINKS


def _received_fewer(scene: Scene, link: Link) -> bool:
    """Whether a rank has sent as often as every other stage, and its peer received less often."""
    key = link.instance.key
    counter = key.counter
    if key.transfer is None or not isinstance(counter, Transfers):
        return False
    ranks = (link.rank, link.whom)
    if (counter.source, counter.destination) != ranks or not _complete(scene, scene.ops):
        return False
    sent = scene.posted(link.rank).get(counter, 0)
    received = scene.posted(link.whom).get(counter, 0)
    others = _other_links(scene, counter)
    whole = all(pair == (sent, sent) for pair in others)
    return received < sent and whole and len(others) >= _OTHER_LINKS


def _complete(scene: Scene, ranks: Collection[int]) -> bool:
    return all(not scene.ops[rank].overwritten for rank in ranks)


def _other_links(scene: Scene, counter: Transfers) -> list[tuple[int, int]]:
    """(sends, receives) of each other pair of neighbours in the direction of this one."""
    hop = counter.destination - counter.source
    found: list[tuple[int, int]] = []
    for source in scene.ops:
        destination = source + hop
        if source == counter.source or destination not in scene.ops:
            continue
        link = Transfers(counter.group, source, destination)
        sent = scene.posted(source).get(link, 0)
        received = scene.posted(destination).get(link, 0)
        if sent or received:
            found.append((sent, received))
    return found
