"""Readings of waits in sends and receives, followed from one rank to the next: who is at their end has gone on
without what the others wait for.
"""

from __future__ import annotations

from ..model.capture import Frame
from ..model.diagnosis import Kind
from ..stacks.call_syntax import is_given_to
from ..stacks.user_code import is_users
from .case import Case
from .confidence import Ground
from .findings import Apart
from .odd_ranks import Odd, Views
from .position import compare, is_rounds_behind, program
from .stackgraph import End
from .view import RankView


def awaited(case: Case, end: End, views: Views) -> Odd | None:
    """The rank in a collective for which all others' sends and receives wait, by its number, several of
    them straight: it posted the other half of none of them.
    """
    waiting = [view for view in views.values() if view.place.kind == "p2p"]
    if not any(view.rank in end.ranks for view in waiting):
        return None
    lasts = {_last_of(view, views) for view in waiting}
    rank = lasts.pop() if len(lasts) == 1 else -1
    straight = [view for view in waiting if view.place.peer == rank]
    if len(straight) < 2 or rank not in end.ranks or views[rank].place.kind != "collective":
        return None
    past = all(compare(views[rank].path, view.path) == 1 for view in straight)
    how = Apart.PAST if past else Apart.SMALLER_SIDE
    return Odd("order", [rank], sorted(v.rank for v in straight), how, ground=Ground.FEW_ELSEWHERE)


def _last_of(view: RankView, views: Views) -> int:
    """The rank that a rank waits for in the end, from one send or receive to the next; -1 without one."""
    seen: set[int] = set()
    while view.place.kind == "p2p":
        if view.rank in seen or view.place.peer not in views:
            return -1
        seen.add(view.rank)
        view = views[view.place.peer]
    return view.rank


def at_the_end(case: Case, end: End, views: Views) -> Odd | None:
    """The rank that went on while the one before it waits at its line for a send of it, and at the same
    line another one for the send that then follows, and so on.

    Had the first of these made a call too many, it would have sent all that the next one waits for.
    """
    found = [(rank, chain) for rank in end.ranks if len(chain := _chain_to(rank, views)) > 1]
    if len(found) != 1:
        return None
    [(rank, chain)] = found
    if any(compare(views[rank].path, view.path) != 1 for view in chain):
        return None
    others = sorted(view.rank for view in chain)
    kind: Kind = "p2p_unmatched" if views[rank].place.kind == "p2p" else "order"
    return Odd(kind, [rank], others, Apart.PAST, ground=Ground.END_OF_CHAIN)


def _chain_to(rank: int, views: Views) -> list[RankView]:
    """Who waits for this rank in a send or receive, and at the same line for that one, and so on; as far
    as it is one rank each time.
    """
    chain: list[RankView] = []
    line = ""
    while True:
        waits = [v for v in views.values() if v.place.kind == "p2p" and v.place.peer == rank]
        waits = [v for v in waits if not chain or _at_line(v) == line]
        if len(waits) != 1 or waits[0] in chain:
            return chain
        chain += waits
        rank, line = waits[0].rank, _at_line(waits[0])


def _at_line(view: RankView) -> str:
    return f"{view.place.op} {view.place.frame}"


def rounds_ahead(case: Case, end: End, views: Views) -> Odd | None:
    """The one rank that has gone on to a later round of the loop than those who wait for a send or
    receive of it: who waits for a rank in an earlier round waits rightly.
    """
    waiting = [views[r] for r in end.ranks]
    if any(view.place.kind != "p2p" or view.place.peer not in views for view in waiting):
        return None
    held = [v for v in waiting if is_rounds_behind(v.path, views[v.place.peer].path)]
    gone_on = {view.place.peer for view in held}
    if len(gone_on) != 1:
        return None
    others = sorted(view.rank for view in held)
    return Odd("order", sorted(gone_on), others, Apart.ROUND_AHEAD, ground=Ground.ROUNDS_AHEAD)


def out_of_the_loop(case: Case, end: End, views: Views) -> Odd | None:
    """The one rank that has left a loop in which the ranks before and after it still wait for it, as in
    ``backwards(forwards(batch))``: it sent and received less in the first of the two.

    Only calls within one another show an order: lines apart may be of different parts of the program.
    Where the loop is around both functions, who is in which of them shows nothing.
    """
    out: dict[int, list[int]] = {}
    for rank in end.ranks:
        waiting = [v for v in views.values() if v.place.kind == "p2p" and v.place.peer == rank]
        partners = sorted(view.rank for view in waiting)
        both_ways = len(partners) > 1 and views[rank].place.peer in partners
        if both_ways and all(_left_loop_of(views[rank], view) for view in waiting):
            out[rank] = partners
    if len(out) != 1:
        return None
    [(rank, others)] = out.items()
    return Odd("p2p_unmatched", [rank], others, Apart.OUT_OF_LOOP, ground=Ground.OUT_OF_LOOP)


def both_sides(case: Case, end: End, views: Views) -> Odd | None:
    """Of two ranks that wait for one another, the one that others wait for, too, in the function of
    the second one: with all its partners in the loop of one function and itself in that of another,
    it made more or fewer rounds of the one than they.

    Each function goes all its rounds by a loop of its own. Where one loop is around both, as in
    1F1B, who waits for whom in which of them shows nothing.
    """
    found = [odd for odd in (_apart(rank, end, views) for rank in end.ranks) if odd is not None]
    return found[0] if len(found) == 1 and len(end.ranks) == 2 else None


def _apart(rank: int, end: End, views: Views) -> Odd | None:
    mine, theirs = views[rank], [views[r] for r in end.ranks if r != rank]
    partners = [v for v in views.values() if v.place.kind == "p2p" and v.place.peer == rank]
    if mine.place.kind != "p2p" or len(partners) < 2 or theirs[0] not in partners:
        return None
    here, there = _loops(mine), [_loops(view) for view in partners]
    together = set.intersection(*there)
    alone = here - together
    if not alone or together <= here or any(alone & loops for loops in there):
        return None
    if not all(_in_turn(mine, view) for view in partners):
        return None
    others = sorted(view.rank for view in partners)
    return Odd("p2p_unmatched", [rank], others, Apart.BOTH_SIDES, ground=Ground.BOTH_SIDES)


def _in_turn(view: RankView, other: RankView) -> bool:
    """Whether the function in which both are calls one part and then the other: on two lines,
    neither of which is for some ranks alone as those of a server are, or within one another.
    """
    caller: Frame | None = None
    for one, two in zip(program(view.path), program(other.path), strict=False):
        if (one.name, one.file) != (two.name, two.file):
            if caller is None:
                return False
            names = one.own_name, two.own_name
            return is_given_to(*names, caller.code) or is_given_to(*names[::-1], caller.code)
        if one.line != two.line:
            return not (one.only or two.only)
        caller = one
    return False


def _loops(view: RankView) -> set[tuple[str, str]]:
    """The functions of the user's in whose own loops it is."""
    own = [frame for frame in program(view.path) if is_users(frame)]
    return {(f.name, f.file) for f in own if (f.turns or f.counts) and f.counts != "while"}


def _left_loop_of(view: RankView, inside: RankView) -> bool:
    """Whether `inside` is in a loop of the function whose result `view` has already gone on with, both in
    one round.
    """
    caller: Frame | None = None
    for one, other in zip(program(view.path), program(inside.path), strict=False):
        if (one.name, one.file) != (other.name, other.file):
            if caller is None or other.counts in ("", "while"):
                return False
            return is_given_to(other.own_name, one.own_name, caller.code)
        if one.line != other.line or not _in_one_round(one, other):
            return False
        caller = one
    return False


def _in_one_round(one: Frame, other: Frame) -> bool:
    """Whether the loop around both lines, if there is one, is known to be in one round on both."""
    name = one.counts
    return not name or (name in one.values and one.values[name] == other.values.get(name))
