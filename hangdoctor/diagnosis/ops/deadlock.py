"""Ranks that wait for one another in a ring: which of them made a wrong call?"""

from __future__ import annotations

from collections import Counter, deque

from msgspec import structs

from ...model.diagnosis import Where
from ..confidence import Ground, sure
from ..findings import Finding, Op, Ring
from . import left_by_error
from .apart_in_group import parted_members
from .blame import blame
from .changed_rounds import other_round
from .divergence import Divergence
from .facts import nodes_of, op_of, where_of
from .groups_made import groups_left_out
from .keys import P2P_NAMES, key_of
from .one_missing import only_one_missing
from .order import (
    Link,
    both_sides,
    divergence_finding,
    kind_of_divergence,
    link_clue,
    was_not_due,
)
from .partners import other_partners, with_wrong_rank
from .same_line import to_other_peers
from .scene import Scene
from .stage_links import awaited_by_more, between_two, one_too_many, stopped_passing_on
from .unanswered import transfers_apart
from .waits import WaitGraph

Sides = tuple[tuple[tuple[int, ...], Op], ...]

_SHOWN = 8  # waits of a ring
_STARTS = 16  # ranks from which a shortest ring is looked for


def deadlock_findings(scene: Scene, graph: WaitGraph, ranks: list[int]) -> list[Finding]:
    """Findings on the ranks of a component of waits that nothing leads out of."""
    by_error = left_by_error.left(scene, graph, ranks)
    if by_error is not None:
        return [by_error]
    parted = blame(scene, likely_first(scene, ranks))
    found = {rank: d for rank, d in parted.items() if not was_not_due(scene, d)}
    found = found or transfers_apart(scene, ranks)
    found = found or to_other_peers(scene, ranks) or groups_left_out(scene, ranks)
    found |= _also_missing(scene, graph, found)
    even = _even_sides(scene, graph, ranks, list(found))
    if even is not None:
        return [even]
    if not found:
        cycle = shortest_cycle(graph, ranks)
        by_links = other_partners(scene, graph, ranks) or stopped_passing_on(scene, cycle)
        by_links = by_links or one_too_many(scene, cycle) or other_round(scene, cycle)
        by_links = by_links or awaited_by_more(scene, graph, cycle)
        by_links = by_links or between_two(scene, graph, cycle) or with_wrong_rank(scene, cycle)
        by_links = by_links or only_one_missing(scene, cycle)
        return [by_links or _undecided(scene, _of_all_alike(graph, ranks, cycle))]
    by_kind: dict[str, list[int]] = {}
    for rank, d in found.items():
        by_kind.setdefault(kind_of_divergence(d), []).append(rank)
    findings = []
    for some in by_kind.values():
        parted = {r: found[r] for r in some}
        findings.append(divergence_finding(scene, parted, shortest_cycle(graph, ranks, some[0])))
    return findings


def _also_missing(
    scene: Scene, graph: WaitGraph, found: dict[int, Divergence]
) -> dict[int, Divergence]:
    """Further ranks that have not come to what one of `found` skipped, and are in the very
    collective in which that one is: they skipped it, too, whatever their earlier calls were.
    """
    further: dict[int, Divergence] = {}
    for rank, d in found.items():
        active = scene.frontier(rank).active
        if d.how != "skipped" or len(active) != 1 or active[0].op in P2P_NAMES:
            continue
        key = key_of(d.theirs, d.reference)
        absent = next((i.absent for i in graph.instances if i.key == key), [])
        for other in absent:
            theirs = scene.frontier(other).active
            if other in found or len(theirs) != 1:
                continue
            if key_of(theirs[0], other) == key_of(active[0], rank):
                further[other] = structs.replace(d, rank=other, mine=theirs[0])
    return further


def _even_sides(
    scene: Scene, graph: WaitGraph, ranks: list[int], blamed: list[int]
) -> Finding | None:
    """A ring in which as many ranks are in one collective as in another one of crossing groups, and
    the histories blame all of one side: seen from it, the other side made the two calls in another
    order.
    """
    sides = _sides(scene, ranks)
    if not _cross(sides) or sorted(blamed) not in [sorted(side) for side, _ in sides]:
        return None
    if len({scene.frontier(rank).active[0].group for rank in ranks}) < len(ranks):
        return None  # of a call that several have come to, the others are late
    if any(set(_beside(graph, rank)) - set(ranks) for rank in set(ranks) - set(blamed)):
        return None  # so are they of one to which ranks beside the ring have come
    members = {tuple(scene.groups.members(scene.frontier(r).active[0].group, r)) for r in ranks}
    if len(members) == 1:
        return None  # all wait in one group: no rank stands between two
    cycle, everyone = shortest_cycle(graph, ranks), sorted(ranks)
    return Finding(
        kind="order",
        ranks=everyone,
        story=Ring(each=sides, whole=True),
        confidence=sure(Ground.RING_BY_RECORDS),
        nodes=nodes_of(scene, everyone),
        where=where_of(scene, cycle[0].instance, None, everyone) if cycle else Where(),
        clues=[link_clue(scene, link) for link in cycle[:_SHOWN]],
    )


def _beside(graph: WaitGraph, rank: int) -> list[int]:
    """Who waits in what the rank waits in."""
    return [r for at in graph.waits_in.get(rank, ()) for r in graph.instances[at].waiters]


def _cross(sides: Sides) -> bool:
    """Whether as many ranks are in one collective as in another, several in each."""
    return len(sides) == 2 and len(sides[0][0]) == len(sides[1][0]) > 1


def _sides(scene: Scene, ranks: list[int]) -> Sides:
    """Who is in which collective, by its kind of group; () where one is in none, or in several."""
    sides: dict[object, list[int]] = {}
    for rank in sorted(ranks):
        active = scene.frontier(rank).active
        if len(active) != 1 or active[0].op in P2P_NAMES:
            return ()
        sides.setdefault((active[0].op, scene.groups.role(active[0].group)), []).append(rank)
    return tuple(
        (tuple(side), op_of(scene, scene.frontier(side[0]).active[0], side[0]))
        for side in sides.values()
    )


def likely_first(scene: Scene, ranks: list[int]) -> list[int]:
    """Ranks that are where few others are come first: only N are compared."""

    def place(rank: int) -> object:
        active = scene.frontier(rank).active
        return (active[0].op, scene.groups.role(active[0].group)) if active else ()

    counts = Counter(place(rank) for rank in ranks)
    return sorted(ranks, key=lambda r: (counts[place(r)], r))


def shortest_cycle(graph: WaitGraph, ranks: list[int], through: int | None = None) -> list[Link]:
    """A shortest ring of waits of `ranks`, which nothing leads out of, as the instances along it;
    from a few starts, breadth first.
    """
    best: list[Link] = []
    starts = [through] if through is not None else sorted(ranks)[:_STARTS]
    for start in starts:
        found = _ring_from(graph, start)
        if found and (not best or len(found) < len(best)):
            best = found
    return best


def _ring_from(graph: WaitGraph, start: int) -> list[Link]:
    came: dict[int, tuple[int, int]] = {}
    queue = deque([start])
    entered: set[int] = set()
    while queue:
        rank = queue.popleft()
        for at in graph.waits_in.get(rank, ()):
            if at in entered:
                continue
            entered.add(at)
            for to in graph.instances[at].targets:
                if to in came:
                    continue
                came[to] = (rank, at)
                if to == start:
                    return _walk_back(graph, came, start)
                queue.append(to)
    return []


def _walk_back(graph: WaitGraph, came: dict[int, tuple[int, int]], start: int) -> list[Link]:
    path: list[Link] = []
    rank = start
    while True:
        whom = rank
        rank, at = came[rank]
        path.append(Link(rank, graph.instances[at], whom))
        if rank == start:
            return path[::-1]


def _of_all_alike(graph: WaitGraph, ranks: list[int], cycle: list[Link]) -> list[Link]:
    """The waits of all ranks, where each is in as short a ring as any: naming two of them would say
    more than is known.
    """
    if len(ranks) > _SHOWN or len(ranks) == len(cycle):
        return cycle
    through = {rank: shortest_cycle(graph, ranks, rank) for rank in ranks}
    if any(len(ring) != len(cycle) for ring in through.values()):
        return cycle
    return [link for rank, ring in through.items() for link in ring if link.rank == rank]


def _undecided(scene: Scene, cycle: list[Link]) -> Finding:
    """No history shows which rank began: the smallest set that the ring singles out."""
    ring = sorted({link.rank for link in cycle})
    parted = parted_members(scene, ring)
    late = [link.whom for link in cycle if link.instance.key.transfer and link.whom in parted]
    if len(parted) == 2 and len(late) == 1:
        # Another rank waits for a transfer of this one alone, so that the two ends of that link
        # part as well.
        return divergence_finding(scene, {late[0]: parted[late[0]]}, cycle)
    whole = not any(scene.ops[rank].overwritten for rank in ring)
    story = Ring(sides=both_sides(scene, cycle), whole=whole)
    if parted:
        ring = sorted(parted)
        first = parted[ring[0]]
        story = Ring(
            op_of(scene, first.mine, first.rank), op_of(scene, first.theirs, first.reference)
        )
    transfers = [link for link in cycle if link.instance.key.transfer is not None]
    if not parted and not transfers and _cross(each := _sides(scene, ring)):
        story = structs.replace(story, each=each)
    unmatched = len(transfers) == len(cycle) or (transfers and story.sides)
    return Finding(
        kind="p2p_unmatched" if unmatched else "order",
        ranks=ring,
        story=story,
        confidence=sure(Ground.RING_BY_RECORDS),
        nodes=nodes_of(scene, ring),
        where=where_of(scene, cycle[0].instance, None, ring),
        clues=[link_clue(scene, link) for link in cycle[:_SHOWN]],
    )
