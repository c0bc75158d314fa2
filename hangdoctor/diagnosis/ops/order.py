"""Causes of kind `order`, `p2p_unmatched` and wrong group: somebody left the program that its like follow."""

from __future__ import annotations

from msgspec import Struct

from ...model import Alternative, Cause, Evidence, Kind
from .history import Divergence
from .keys import P2P_NAMES
from .scene import Scene
from .waits import Instance
from .words import at_site, capital, nodes_of, op_text, place_text, ranks_text, where_of

_ADVICE = {
    "order": "Look between the two lines for a branch that only this rank took, or an exception that was swallowed: every member of a "
    "group must make the same calls on it, in the same order.",
    "p2p_unmatched": "Compare the two lines: each send needs one receive on the other side, in the same order.",
    "mismatch": "Make all members call it on the same group; compare the lines given.",
    "end_stall": "Find why this rank ends earlier or later than the others: uneven data, an exception, its step count.",
}


class Link(Struct):
    """One wait of a ring: the rank waits in the instance for the next one."""

    rank: int
    instance: Instance
    whom: int


def kind_of_divergence(d: Divergence) -> Kind:
    left_out = d.theirs if d.how == "skipped" else d.mine
    names = {op.op for op in (d.mine, d.theirs) if op is not None}
    if "destroy_process_group" in names:
        return "end_stall"
    if d.how in ("group", "other"):
        return "mismatch"
    return "p2p_unmatched" if left_out is not None and left_out.op in P2P_NAMES else "order"


def cause_of_divergence(scene: Scene, found: dict[int, Divergence], cycle: list[Link]) -> Cause:
    """One cause for ranks that left their program in the same way; `cycle`: the waits that close on them."""
    ranks = sorted(found)
    first = found[ranks[0]]
    kind = kind_of_divergence(first)
    text = _story(scene, first, capital(ranks_text(ranks)))
    sure = 0.65 if first.how == "own" else 0.75 if first.before_records else 0.9
    cause = Cause(kind, ranks, nodes_of(scene, ranks), sure, text + cycle_text(scene, cycle))
    held = next((link.instance for link in cycle if ranks[0] == link.whom), None)
    cause.where = where_of(scene, held, None if held else first.mine, ranks)
    cause.evidence = [_difference(scene, d) for _, d in sorted(found.items())[:8]]
    cause.evidence += [Evidence("ops", [link.rank], link_text(scene, link)) for link in cycle[:8]]
    innocent = sorted({link.rank for link in cycle} - set(ranks))
    if innocent:
        why = (
            "they go on as in the rounds before"
            if first.how == "own"
            else "their histories agree with those of the ranks with the same role"
        )
        cause.alternatives = [Alternative(kind, innocent, why)]
    cause.advice = _ADVICE[kind]
    return cause


def _story(scene: Scene, d: Divergence, who: str) -> str:
    mine = f"{op_text(scene, d.mine, d.rank)}{at_site(d.mine)}" if d.mine else "nothing"
    theirs = f"{op_text(scene, d.theirs, d.reference)}{at_site(d.theirs)}" if d.theirs else "nothing"
    place = place_text(scene, [d.rank])
    if d.before_records:
        way = "behind" if d.how == "skipped" else "ahead of"
        since = f"{who} is out of step since before the records begin"
        return f"{since}: its {mine} is {way} {theirs} of rank {d.reference}{place}"
    if d.how == "own":
        return f"{who} entered {mine} where it had come to {theirs} in each round before{place}"
    if d.how == "skipped" and d.mine and d.theirs and (d.mine.group, d.mine.seq) == (d.theirs.group, d.theirs.seq):
        return f"{who} skipped {theirs}, which rank {d.reference} waits in, and went on to {mine}{place}"
    if d.how == "skipped":
        return f"{who} skipped {_own(scene, d, theirs)} and went on to {mine}{place}"
    if d.how == "extra":
        return f"{who} made one call too many, {mine}, where its like came to {theirs}{place}"
    if d.how == "group":
        return f"{who} entered {mine} on another group than its like: rank {d.reference} called {theirs} there{place}"
    return f"{who} entered {mine} where rank {d.reference}, which has the same role, entered {theirs}{place}"


def _own(scene: Scene, d: Divergence, theirs: str) -> str:
    return f"what rank {d.reference}, which has the same role, did next: {theirs}"


def _difference(scene: Scene, d: Divergence) -> Evidence:
    mine = f"{op_text(scene, d.mine, d.rank)}{at_site(d.mine)}" if d.mine else "nothing"
    theirs = f"{op_text(scene, d.theirs, d.reference)}{at_site(d.theirs)}" if d.theirs else "nothing"
    there = "one round before" if d.how == "own" else f"rank {d.reference} at the same place"
    return Evidence("ops", [d.rank], f"record {d.position}: {mine}; {there}: {theirs}")


def link_text(scene: Scene, link: Link) -> str:
    op = scene.find(link.rank, link.instance.key) or link.instance.sample
    return f"rank {link.rank} waits in {op_text(scene, op, link.rank)}{at_site(op)} for rank {link.whom}"


def cycle_text(scene: Scene, cycle: list[Link]) -> str:
    """The waits that close in a ring, each with its line."""
    if not cycle:
        return "."
    more = f", and {len(cycle) - 4} waits more" if len(cycle) > 4 else ""
    return ". " + capital("; ".join(link_text(scene, link) for link in cycle[:4])) + more + "."
