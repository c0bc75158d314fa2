"""All ranks are in the making of further groups: the job's own set-up is over, so that they do reach
one another. Who asks for another mesh, or for a group of other ranks, than the rest?

Only a call that all have come to by the same lines is compared, and none in a loop, where ranks may
be at different turns: there the numbers of the groups decide (`group_numbers`).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ..model.capture import Frame
from ..stacks.user_code import is_users
from ..text.late import late
from ..text.ranges import format_ranks
from . import findings as f
from . import group_numbers, local_groups
from .case import Case, finding_on, in_op, ranks_of, sides_of, where_held
from .case import op_of as seen_op
from .confidence import Ground, sure
from .findings import Against, Clue, DecidedBy, Finding, Why
from .position import compare, counters, group_by_operation, steps
from .view import RankView

_MAKES = late(r"(?:.*\.)?(?:new_group|new_subgroups\w*|_new_group_with_tag|split_group)$")
_MESH, _MEMBERS = "mesh shape", "members"
_NAMES = {"mesh_shape": _MESH, "ranks": _MEMBERS}
_MOST_AXES = 8
Sides = dict[tuple[int, ...], list[RankView]]


class Asked(Struct, frozen=True):
    """What a rank asks for: `values` of a mesh's shape or a group's members, and the lines that lead
    to the call (function, file, line, loop counters), outermost first.
    """

    call: str
    field: str
    values: tuple[int, ...]
    way: tuple[object, ...]
    comparable: bool


def are_made(joining: Sequence[RankView]) -> bool:
    """Whether all are in the making of a group that needs the job's own one first."""
    return bool(joining) and all(any(map(_makes_group, view.path)) for view in joining)


def find(case: Case, joining: list[RankView]) -> Finding:
    """The ranks that ask for something else than most, else all."""
    found = apart(case, joining) or local_groups.find(case, joining)
    return found or _all(case, joining, [_asked(view) for view in joining])


def apart(case: Case, joining: list[RankView]) -> Finding | None:
    """The ranks that ask for something else than most; None where nothing shows that."""
    known = [one for one in map(_asked, joining) if one is not None]
    if len(known) == len(joining) and _one_call(known):
        found = _differ(case, joining, known)
        if found is not None:
            return found
    return group_numbers.find(case, joining)


def left_alone(case: Case, waiting: Sequence[RankView]) -> Finding | None:
    """Ranks that make a group of which all members have come, and which all other ranks are past.

    Nobody is past a group that all ranks make together before its members have made it: the others
    have made another one at that line, under the same name in the store.
    """
    makers = [view for view in waiting if any(map(_makes_group, view.path))]
    others = [view for view in case.alive if view not in makers]
    known = [one for one in map(_asked, makers) if one is not None]
    if not others or len(known) < len(makers) or not _one_call(known):
        return None
    if {one.values for one in known} != {ranks_of(makers)} or known[0].field != _MEMBERS:
        return None
    if not all(compare(steps(view), steps(makers[0])) == 1 for view in others):
        return None
    story = f.OwnGroup(seen_op(makers), ranks_of(others))
    finding = finding_on(case, "mismatch", makers, story, confidence=sure(Ground.OWN_GROUP))
    finding.clues = _clues(_by_values(makers, known, _MEMBERS), _MEMBERS)
    finding.clues += [in_op(side) for side in group_by_operation(others)]
    return finding


def _makes_group(frame: Frame) -> bool:
    return "torch/distributed/" in frame.file and _MAKES.match(frame.name) is not None


def _asked(view: RankView) -> Asked | None:
    """The outermost call that says it; None where no frame does."""
    path = steps(view)
    for at, frame in enumerate(path):
        for name, field in _NAMES.items():
            values = frame.lists.get(name)
            if not values:
                continue
            way = path[:at]
            if field == _MEMBERS:
                values = sorted(_innermost(path[at:], name))
            comparable = _runs_once(way, field)
            places = tuple((f.name, f.file, f.line) for f in way) + counters(way)
            return Asked(frame.name, field, tuple(values), places, comparable)
    return None


def _innermost(path: Sequence[Frame], name: str) -> list[int]:
    """The list of the innermost frame that has it: there defaults are filled in."""
    return next(frame.lists[name] for frame in reversed(path) if name in frame.lists)


def _runs_once(way: Sequence[Frame], field: str) -> bool:
    """Whether the lines that lead to a call are known to run once. A library may make its groups in a
    loop; its meshes it does not.
    """
    users = [frame for frame in way if is_users(frame)]
    if not users or any(frame.loops or not frame.code for frame in users):
        return False
    return field == _MESH or is_users(way[-1])


def _one_call(asked: Sequence[Asked]) -> bool:
    """Whether all have come to the same call by the same lines, which run once."""
    calls = {(one.call.rpartition(".")[2], one.field, one.way) for one in asked}
    return len(calls) == 1 and all(one.comparable for one in asked)


def _differ(case: Case, views: list[RankView], asked: list[Asked]) -> Finding | None:
    """One finding where they ask for different things; None where they agree, or where each asks for
    the group that it is in itself: then none of them is alone with its mistake.
    """
    field = asked[0].field
    sides = _by_values(views, asked, field)
    if len(sides) < 2 or (field == _MEMBERS and _each_its_own(sides)):
        return None
    most = max(sides.values(), key=len)
    rest = [view for view in views if view not in most]
    if len(most) > len(rest):
        ground = Ground.OTHER_MESH if field == _MESH else Ground.OTHER_MEMBERS
        return _disagree(case, asked[0], sides, rest, sure(ground))
    if len(sides) > 2:
        return None
    return _disagree(case, asked[0], sides, views, sure(Ground.SIGNATURE_OPEN))


def _disagree(
    case: Case, asked: Asked, sides: Sides, odd: list[RankView], confidence: float
) -> Finding:
    """`odd` are those that differ from most, or all where as many ask for one as for the other."""
    decided = not all(any(view in odd for view in side) for side in sides.values())
    usual = max(sides, key=lambda values: len(sides[values]))
    others = [values for values in sides if values != usual]
    op = f.Op(asked.call, site=str(odd[0].place.frame))
    story = f.Disagrees(
        op,
        op,
        (asked.field,),
        (" or ".join(_words(asked.field, values) for values in others),),
        their_values=(_words(asked.field, usual),),
        ground=DecidedBy.MAJORITY if decided else DecidedBy.UNDECIDED,
        sides=() if decided else (ranks_of(sides[others[0]]), ranks_of(sides[usual])),
    )
    finding = finding_on(case, "mismatch", odd, story, confidence=confidence)
    finding.where = where_held(case, case.waiting, odd[0])
    finding.clues = _clues(sides, asked.field)
    return finding


def _each_its_own(sides: Sides) -> bool:
    """Whether all groups are apart and every rank is in the one that it makes."""
    members = [rank for values in sides for rank in values]
    inside = all(view.rank in values for values, side in sides.items() for view in side)
    return inside and len(members) == len(set(members))


def _words(field: str, values: tuple[int, ...]) -> str:
    """``mesh shape 2 x 3``, ``members 0-3``."""
    if field == _MESH:
        return f"{field} {' x '.join(map(str, values[:_MOST_AXES]))}"
    return f"{field} {format_ranks(values)}"


def _clues(sides: Sides, field: str) -> list[Clue]:
    found = []
    for values, side in sides.items():
        frame = side[0].place.frame
        fact = f.Signed((_words(field, values),), str(frame) if frame is not None else "")
        found.append(Clue("stack", ranks_of(side), fact))
    return found


def _all(case: Case, joining: list[RankView], asked: Sequence[Asked | None]) -> Finding:
    """Nothing shows who makes other groups."""
    story = f.NoneLeaves(seen_op(joining), starting=True, later=True, sides=sides_of(joining))
    confidence = sure(Ground.NONE_LEAVES)
    finding = finding_on(case, "start_stall", joining, story, confidence=confidence)
    finding.where = where_held(case, joining, joining[0])
    finding.clues = [in_op(side) for side in group_by_operation(joining)]
    for field in (_MESH, _MEMBERS):
        finding.clues += _clues(_by_values(joining, asked, field), field)
    finding.against = [Against("not_entered", (), Why.ALL_JOINED)]
    return finding


def _by_values(views: Sequence[RankView], asked: Sequence[Asked | None], field: str) -> Sides:
    sides: Sides = {}
    for view, one in zip(views, asked, strict=True):
        if one is not None and one.field == field:
            sides.setdefault(one.values, []).append(view)
    return sides
