"""All ranks are in the making of further groups, perhaps in a loop: under which number does each make its group?

torch counts the groups that a process makes, and the members of one meet in the store under that number. Ranks with
one member set and two numbers never meet, nor do ranks with one number and two member sets: their groups were made in
another order, or one more or less was made before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from ..text.ranges import format_ranks
from . import findings as f
from .case import Case, finding_on, ranks_of, where_held
from .case import op_of as seen_op
from .confidence import Ground, sure
from .findings import Clue, DecidedBy, Finding
from .view import RankView

FIELD = "order of groups"
_NUMBER = "group number"
_MEMBERS = "ranks"


class Numbered(Struct, frozen=True, order=True):
    """A group as a rank makes it."""

    number: int
    members: tuple[int, ...]


Sides = dict[Numbered, list[RankView]]


class Apart(Struct):
    """Who makes other groups than most, and what those groups and the others' are."""

    odd: dict[int, RankView] = {}  # by rank
    mine: list[Numbered] = []
    theirs: list[Numbered] = []
    open: list[Sides] = []  # two sides of as many ranks


def find(case: Case, joining: list[RankView]) -> Finding | None:
    """The ranks whose groups do not fit those of most; None where all fit, or one's is not known."""
    made = {view.rank: one for view in joining if (one := _made(view)) is not None}
    if len(made) < len(joining):
        return None
    apart = _apart(list(_clashes(joining, made)))
    if not apart.odd and not apart.open:
        apart = _past_one_another(joining, made)
    if apart.odd and 2 * len(apart.odd) < len(joining):
        return _on_odd(case, joining, made, apart)
    return _left_open(case, joining, made, apart.open)


def _made(view: RankView) -> Numbered | None:
    for frame in view.path:
        number, members = frame.lists.get(_NUMBER), frame.lists.get(_MEMBERS)
        if number and members:
            return Numbered(number[0], tuple(sorted(members)))
    return None


def _clashes(views: Sequence[RankView], made: dict[int, Numbered]) -> Iterator[Sides]:
    """The sides of each member set that is made under several numbers, then of each number under which
    several are made; but none where each makes the group that it is in itself.
    """
    by_members: dict[tuple[int, ...], Sides] = {}
    by_number: dict[int, Sides] = {}
    for view in views:
        group = made[view.rank]
        by_members.setdefault(group.members, {}).setdefault(group, []).append(view)
        by_number.setdefault(group.number, {}).setdefault(group, []).append(view)
    yield from (sides for sides in by_members.values() if len(sides) > 1)
    several = [sides for sides in by_number.values() if len(sides) > 1]
    yield from (sides for sides in several if not _each_its_own(sides))


def _past_one_another(views: Sequence[RankView], made: dict[int, Numbered]) -> Apart:
    """Who waits for a member that is past the number of its group, and has made another one under it; with
    all who make the same groups as either, the fewer are apart.
    """
    waiting: set[Numbered] = set()
    past: set[Numbered] = set()
    for group in made.values():
        ahead = [made[m] for m in group.members if m in made and made[m].number > group.number]
        if ahead:
            waiting.add(group)
            past |= set(ahead)
    sides = [[view for view in views if made[view.rank] in groups] for groups in (waiting, past)]
    if waiting & past or len(sides[0]) == len(sides[1]):
        return Apart()
    few, most = sorted(sides, key=len)
    return Apart(
        odd={view.rank: view for view in few},
        mine=[made[view.rank] for view in few],
        theirs=[made[view.rank] for view in most],
    )


def _each_its_own(sides: Sides) -> bool:
    members = [rank for group in sides for rank in group.members]
    inside = all(view.rank in group.members for group, side in sides.items() for view in side)
    return inside and len(members) == len(set(members))


def _apart(clashes: Sequence[Sides]) -> Apart:
    """Of each clash, those who are not on the side of more than half."""
    found = Apart()
    for sides in clashes:
        usual = max(sides, key=lambda group: len(sides[group]))
        rest = [group for group in sides if group != usual]
        others = [view for group in rest for view in sides[group]]
        if len(sides[usual]) > len(others):
            found.odd |= {view.rank: view for view in others}
            found.mine += rest
            found.theirs.append(usual)
        elif len(sides) == 2:
            found.open.append(sides)
    return found


def _on_odd(
    case: Case, joining: list[RankView], made: dict[int, Numbered], apart: Apart
) -> Finding:
    odd = [apart.odd[rank] for rank in sorted(apart.odd)]
    op = f.Op(seen_op(joining).name, site=str(odd[0].place.frame))
    story = f.Disagrees(
        op,
        op,
        (FIELD,),
        (_words(apart.mine),),
        their_values=(_words(apart.theirs),),
        ground=DecidedBy.MAJORITY,
    )
    return _finding(case, odd, story, sure(Ground.OTHER_ORDER), _clues(joining, made))


def _left_open(
    case: Case, joining: list[RankView], made: dict[int, Numbered], clashes: Sequence[Sides]
) -> Finding | None:
    """The earlier numbers on one side, the later on the other."""
    if not clashes:
        return None
    ordered = [sorted(sides) for sides in clashes]
    sides = [
        [view for clash, groups in zip(clashes, ordered, strict=True) for view in clash[groups[at]]]
        for at in (0, 1)
    ]
    named = {view.rank for side in sides for view in side}
    if len(named) < len(sides[0]) + len(sides[1]):
        return _left_open(case, joining, made, clashes[:1]) if len(clashes) > 1 else None
    views = [view for view in joining if view.rank in named]
    op = f.Op(seen_op(joining).name, site=str(views[0].place.frame))
    story = f.Disagrees(
        op,
        op,
        (FIELD,),
        (_words([groups[0] for groups in ordered]),),
        their_values=(_words([groups[1] for groups in ordered]),),
        ground=DecidedBy.UNDECIDED,
        sides=(ranks_of(sides[0]), ranks_of(sides[1])),
    )
    return _finding(case, views, story, sure(Ground.SIGNATURE_OPEN), _clues(joining, made))


def _finding(
    case: Case, views: list[RankView], story: f.Disagrees, confidence: float, clues: list[Clue]
) -> Finding:
    finding = finding_on(case, "mismatch", views, story, confidence=confidence)
    finding.where = where_held(case, case.waiting, views[0])
    finding.clues = clues
    return finding


def _clues(views: Sequence[RankView], made: dict[int, Numbered]) -> list[Clue]:
    """What each makes, those of one member set together."""
    sides: Sides = {}
    for view in views:
        sides.setdefault(made[view.rank], []).append(view)
    found = []
    for group in sorted(sides, key=lambda one: (one.members, one.number)):
        side = sides[group]
        frame = side[0].place.frame
        fact = f.Signed((_words([group]),), str(frame) if frame is not None else "")
        found.append(Clue("stack", ranks_of(side), fact))
    return found


def _words(groups: Sequence[Numbered]) -> str:
    """``members 0,2 as group #4 and 1,3 as #5``."""
    texts = [f"{format_ranks(group.members)} as #{group.number}" for group in sorted(set(groups))]
    texts[0] = f"members {texts[0].replace('#', 'group #')}"
    return " and ".join(texts)
