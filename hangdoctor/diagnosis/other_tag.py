"""The one rank whose sends and receives have another number for their tag than all others', or than its
neighbours'.

A program that gives a message the number of its step as a tag needs the same number on all ranks:
after a restart from checkpoints of different steps, no message of the one rank fits another's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from ..stacks.user_code import is_users
from ..text.late import late
from . import findings as f
from .case import Case, finding_on, in_op, op_of, ranks_of, where_held
from .confidence import Ground, sure
from .findings import Against, Finding, Why
from .position import group_by_operation
from .view import RankView

_TAG = late(r"\b(?:send|recv|source|dest)?tag\s*=\s*(?P<name>[A-Za-z_]\w*)\s*[,)]", re.I)
_ANY = -1
_PARTNERS = 2  # of a server, beside the one whose turn it is: fewer are no custom
_BESIDE = 2  # transfers of other ranks, whose tags show which of two is apart
_ENOUGH = 3  # others that agree: stages of a pipeline may each be at a count of their own


def find(case: Case, waiting: Sequence[RankView]) -> Finding | None:
    """Name it where all ranks wait in transfers, and all but one of them for one number; or where it has
    another one than both ranks that it exchanges with in one function; or than all who wait for one
    server; or than the server that takes from it and those that send at its line.
    """
    found = _than_all(case, waiting) or _than_neighbours(case, waiting)
    return found or _around_one(case, waiting) or _than_its_like(case, waiting)


def of_two(one: RankView, other: RankView) -> tuple[tuple[int, int], ...]:
    """The tags of the two sides of a transfer, by rank, where they differ; () where one is not known."""
    mine, theirs = _passed(one), _passed(other)
    if mine is None or theirs is None or mine == theirs or _ANY in (mine, theirs):
        return ()
    return ((one.rank, mine), (other.rank, theirs))


def _odd_of_two(one: RankView, other: RankView, waiting: Sequence[RankView]) -> RankView | None:
    """Of the two sides of a transfer the one whose tag is further from the tags of all other transfers,
    the other side's with them, than those are from one another: in a pipeline the stages beside one that
    counts rightly are at numbers like its own.
    """
    both = dict(of_two(one, other))
    around = [v for v in waiting if v.rank not in both and v.place.kind == "p2p"]
    tags = [tag for v in around if (tag := _passed(v)) is not None and tag != _ANY]
    if len(both) != 2 or len(tags) < _BESIDE:
        return None
    odd = [
        view
        for view, with_ in ((one, other), (other, one))
        if _is_apart(both[view.rank], [*tags, both[with_.rank]])
    ]
    return odd[0] if len(odd) == 1 else None


def apart_from_all(
    case: Case, held: Sequence[RankView], waiting: Sequence[RankView]
) -> Finding | None:
    """The side of a transfer with two tags whose tag is none like those of all other transfers."""
    if len(held) != 2 or (view := _odd_of_two(held[0], held[1], waiting)) is None:
        return None
    [other] = [each for each in held if each is not view]
    both = dict(of_two(view, other))
    story = f.OtherTag("tag", both[view.rank], both[other.rank], op_of([view]), (other.rank,))
    return finding_of(case, story, view, [other], Ground.OTHER_TAG)


def _is_apart(tag: int, others: Sequence[int]) -> bool:
    return min(abs(tag - number) for number in others) > max(others) - min(others)


def _passed(view: RankView) -> int | None:
    """The tag that its library's call was given."""
    name = view.place.op
    for frame in reversed(view.path):
        if frame.own_name == name and not is_users(frame):
            return frame.values.get("tag")
    return None


def _than_neighbours(case: Case, waiting: Sequence[RankView]) -> Finding | None:
    """In a ring all call one function, and the number that is a tag there is a variable of it, also where
    a rank waits for the handle of its send.
    """
    names = {tag[0] for view in waiting if (tag := _tag(view)) is not None}
    if len(names) != 1:
        return None
    [name] = names
    inside = {v.rank: v for v in waiting if v.place.kind == "p2p" and _number(v, name) is not None}
    found = []
    for rank, view in inside.items():
        before = inside.get(view.place.peer)
        after = [v for v in inside.values() if v.place.peer == rank and v is not before]
        if before is None or len(after) != 1 or not _in_one_function([view, before, *after]):
            continue
        usual = {_number(before, name), _number(after[0], name)}
        if len(usual) == 1 and _number(view, name) not in usual:
            found.append((view, [before, *after]))
    return _finding(case, name, *found[0]) if len(found) == 1 else None


def _around_one(case: Case, waiting: Sequence[RankView]) -> Finding | None:
    """All others send to one rank, or receive from it, which is at one of them with another tag: the
    tags of those that are not at their turn yet show which of the two is wrong.
    """
    inside = {v.rank: v for v in waiting if v.place.kind == "p2p"}
    [(rank, asking)] = Counter(v.place.peer for v in inside.values()).most_common(1) or [(-1, 0)]
    server = inside.get(rank)
    partner = inside.get(server.place.peer) if server is not None else None
    if server is None or partner is None or not _PARTNERS < asking == len(inside) - 1:
        return None
    others = [v for v in inside.values() if v is not server]
    tags = {_passed(v) for v in others if v is not partner}
    calls = {v.place.op for v in others}
    if len(calls) != 1 or server.place.op in calls or len(tags) != 1 or None in tags:
        return None
    of_both = dict(of_two(server, partner))
    odd = [inside[r] for r, tag in of_both.items() if tag not in tags]
    usual = next((tag for tag in of_both.values() if tag in tags), None)
    if len(odd) != 1 or usual is None:
        return None
    [view] = odd
    alike = [v for v in inside.values() if v is not view]
    story = f.OtherTag("tag", of_both[view.rank], usual, op_of([view]), ranks_of(alike))
    return finding_of(case, story, view, alike, Ground.OTHER_TAG)


def _than_its_like(case: Case, waiting: Sequence[RankView]) -> Finding | None:
    """Of the two sides of a transfer the one whose tag is neither the other's nor that of any rank that waits at
    the same line for that one, all of which have the other's.
    """
    inside = {v.rank: v for v in waiting if v.place.kind == "p2p"}
    found = []
    for view in inside.values():
        server = inside.get(view.place.peer)
        both = dict(of_two(view, server)) if server is not None else {}
        if server is None or server.place.peer != view.rank or not both:
            continue
        like = [v for v in inside.values() if v is not view and _is_like(v, view)]
        if like and {_passed(v) for v in like} == {both[server.rank]}:
            found.append((view, [server, *like]))
    if len(found) != 1:
        return None
    view, others = found[0]
    others = sorted(others, key=lambda each: each.rank)
    mine, usual = _passed(view), _passed(others[0])
    if mine is None or usual is None:
        return None
    story = f.OtherTag("tag", mine, usual, op_of([view]), ranks_of(others))
    return finding_of(case, story, view, others, Ground.OTHER_TAG)


def _is_like(other: RankView, view: RankView) -> bool:
    """Whether it is in the same call of the same line, with the same rank."""
    mine, theirs = view.place.frame, other.place.frame
    if mine is None or theirs is None or (mine.file, mine.line) != (theirs.file, theirs.line):
        return False
    return (other.place.op, other.place.peer) == (view.place.op, view.place.peer)


def _in_one_function(views: Sequence[RankView]) -> bool:
    frames = [view.place.frame for view in views]
    return len({(f.name, f.file) for f in frames if f is not None}) == 1 and None not in frames


def _number(view: RankView, name: str) -> int | None:
    return view.place.frame.values.get(name) if view.place.frame is not None else None


def _than_all(case: Case, waiting: Sequence[RankView]) -> Finding | None:
    tags = {view.rank: tag for view in waiting if (tag := _tag(view)) is not None}
    if len(tags) != case.world_size or len({name for name, _ in tags.values()}) != 1:
        return None
    numbers = {rank: number for rank, (_, number) in tags.items()}
    strange = strange_one(numbers, _ENOUGH)
    if strange is None:
        return None
    view, others = apart(waiting, strange)
    return _finding(case, tags[strange][0], view, others)


def strange_one(numbers: Mapping[int, int], others: int) -> int | None:
    """The rank with another number than all others, where at least so many others have one."""
    counted = Counter(numbers.values()).most_common()
    if len(counted) != 2 or counted[1][1] != 1 or counted[0][1] < others:
        return None
    return next(rank for rank, number in numbers.items() if number == counted[1][0])


def apart(waiting: Sequence[RankView], rank: int) -> tuple[RankView, list[RankView]]:
    """One of them, and the others."""
    [view] = [v for v in waiting if v.rank == rank]
    return view, [v for v in waiting if v is not view]


def _finding(case: Case, name: str, view: RankView, others: list[RankView]) -> Finding:
    strange, usual = _number(view, name), _number(others[0], name)
    assert strange is not None and usual is not None
    story = f.OtherTag(name, strange, usual, op_of([view]), ranks_of(others))
    return finding_of(case, story, view, others, Ground.OTHER_TAG)


def finding_of(
    case: Case,
    story: f.OtherTag | f.OtherRoot,
    view: RankView,
    others: list[RankView],
    ground: Ground,
) -> Finding:
    """That one call names another tag, or root, than those of the others."""
    finding = finding_on(case, "mismatch", [view], story, confidence=sure(ground))
    finding.where = where_held(case, others, view)
    finding.clues = [in_op(side) for side in ([view], *group_by_operation(others))]
    finding.against = [Against("in_communication", ranks_of(others), Why.NOT_ONE_OPERATION)]
    return finding


def _tag(view: RankView) -> tuple[str, int] | None:
    """The variable that the call's line gives as its tag, and its value; None of any other call."""
    frame = view.place.frame
    if view.place.kind != "p2p" or frame is None:
        return None
    names = {match["name"] for match in _TAG.finditer(frame.code)}
    if len(names) != 1:
        return None
    [name] = names
    return (name, frame.values[name]) if name in frame.values else None
