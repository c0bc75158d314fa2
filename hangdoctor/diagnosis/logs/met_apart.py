"""One rank whose traceback is in another collective than those of all others, which had waited there
until the limit, or until the first of them had reached it: by the lines where the errors that ended
their waits met them.
"""

from __future__ import annotations

from ...model.frame import Frame
from ...model.log_facts import GlooTimeout, PythonError, TimedOut
from ...stacks.place_rules import Place
from ...stacks.place_search import HANDLE, find_place
from ...stacks.user_code import is_users
from ..confidence import Ground, sure
from ..findings import Apart, Finding, InOther, Op
from ..position import have_other_parts
from .by_stacks import with_group
from .candidate import First
from .scene import Scene, ranks_named

_ENOUGH = 3  # ranks that agree
_WAITED = 1  # of them, until the limit: its end closed the connections of the others
_NARROW = ("tp", "pp", "sub")  # groups in which one rank alone may wait for one that went on


def met_apart(scene: Scene) -> First | None:
    """The one of at least four ranks; None where several differ, or some were not met in a wait."""
    errors = {e.rank: e for e in scene.of(PythonError) if e.rank >= 0 and e.frames}
    places = {rank: find_place(with_group(e.frames), blocked=True) for rank, e in errors.items()}
    waited = {*ranks_named(scene.of(GlooTimeout)), *ranks_named(scene.of(TimedOut))}
    lost = {v.rank for v in scene.victims() if v.rule == "peer_closed"}
    if set(places) != set(scene.everyone) or len(places) <= _ENOUGH:
        return None
    if any(_is_narrow(p) for p in places.values()):
        return None
    sides: dict[object, list[int]] = {}
    for rank, place in sorted(places.items()):
        sides.setdefault((place.op, place.at), []).append(rank)
    few, most = min(sides.values(), key=len), max(sides.values(), key=len)
    if len(sides) != 2 or len(few) != 1 or len(most) < _ENOUGH:
        return None
    # Who of most lost its connection did so as one that had waited ended.
    ended = set(most) <= waited | lost and len(waited & set(most)) >= _WAITED
    if not set(most) <= waited and not (ended and few[0] in waited):
        return None
    mine, theirs = places[few[0]], places[most[0]]
    here, there = errors[few[0]].frame, errors[most[0]].frame
    outermost_first = [errors[side[0]].frames[::-1] for side in (few, most)]
    if mine.op == HANDLE:
        return None  # of a send, maybe, which one of the others does not receive
    alike = mine.op == theirs.op and not _in_one_function(here, there)
    if alike or have_other_parts(*outermost_first):
        return None
    finding = Finding(
        kind="order",
        ranks=few,
        story=InOther(
            Apart.SMALLER_SIDE, Op(mine.op, frame=here), tuple(most), Op(theirs.op, frame=there)
        ),
        confidence=sure(Ground.LOG_MET_APART),
        nodes=scene.nodes(few),
    )
    finding.where.op = mine.op
    finding.where.frame = str(here) if here is not None else None
    return First(finding, [errors[few[0]], errors[most[0]]], True)


def _in_one_function(one: Frame | None, other: Frame | None) -> bool:
    """Whether the same operation is called from two lines of one function: two calls of all ranks,
    it seems, and one rank made the later one first, or left the other one out.
    """
    if one is None or other is None or not is_users(one):
        return False
    return (one.name, one.file) == (other.name, other.file) and one.line != other.line


def _is_narrow(place: Place) -> bool:
    return place.kind != "collective" or place.group in _NARROW
