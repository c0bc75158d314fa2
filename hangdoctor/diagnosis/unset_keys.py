"""By stacks: a few ranks wait for a key of the store, while all others are in one collective.

Who waits there has made no call too many or too few: it waits until some rank sets the key. Which one is to, the key
says, or the loop over all ranks around the wait; else nothing does, and the sentence says for what is waited.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..stacks.loop_counts import SETTER
from ..stacks.place_search import STORE
from ..text.late import late
from . import compiled_calls
from . import findings as f
from .case import Case, finding_on, in_op, op_of, ranks_of, where_held
from .confidence import Ground, sure
from .findings import Against, Finding, Why
from .ops.key_setters import named_in
from .position import group_by_operation
from .view import RankView

_NUMBERS = late(r"\d{1,6}")
_FEWEST = 2  # ranks: of two each may wait for the other


def find(case: Case, waiting: Sequence[RankView]) -> list[Finding]:
    """Who is to set the key, else who waits for it."""
    few = [view for view in waiting if view.place.op == STORE]
    if len(few) == len(waiting) == case.world_size:
        return _by_number(case, few)
    rest = [view for view in waiting if view.place.op != STORE]
    if len(rest) == 1 and len(few) >= _FEWEST and len(waiting) == case.world_size:
        return _left_over(case, few, rest[0])
    alike = len({view.place.op for view in rest}) == 1
    if not 0 < len(few) < len(rest) or not alike or len(waiting) < len(case.alive):
        return []
    together = all(view.place.kind == "collective" for view in rest)
    if not together and not compiled_calls.all_in_jax(rest):
        return []
    asked = {_asked(view) for view in few}
    key, setter = asked.pop() if len(asked) == 1 else ("", -1)
    named = [view for view in rest if view.rank == setter]
    finding = _setter(case, key, named[0], few) if named else _waits(case, key, few)
    finding.where = where_held(case, rest, (named or few)[0])
    finding.clues = [in_op(side) for side in (few, *group_by_operation(rest))]
    finding.against = [Against("in_communication", ranks_of(few), Why.KEY_IS_NO_COLLECTIVE)]
    return [finding]


def _left_over(case: Case, few: list[RankView], last: RankView) -> list[Finding]:
    """All but one rank wait for one key: of those that are seen, only that one was to set it."""
    keys = {_asked(view)[0] for view in few}
    if len(keys) != 1 or not (key := keys.pop()) or not last.place.communicates:
        return []
    finding = _setter(case, key, last, few)
    finding.confidence = sure(Ground.ONLY_SETTER)
    finding.where = where_held(case, few, last)
    finding.clues = [in_op(few), in_op([last])]
    return [finding]


def _by_number(case: Case, views: list[RankView]) -> list[Finding]:
    """All wait for keys: one of them for a key of its own, in which the only number that the key of
    all others has not is the rank of one of these, as ``round/8/update/2`` where they wait for
    ``round/8/model``.
    """
    keys = {view.rank: _asked(view)[0] for view in views}
    alone = [rank for rank, key in keys.items() if list(keys.values()).count(key) == 1]
    if (
        len(alone) != 1
        or len(set(keys.values())) != 2
        or len(views) <= _FEWEST
        or not all(keys.values())
    ):
        return []
    others = next(key for rank, key in keys.items() if rank != alone[0])
    own = Counter(_NUMBERS.findall(keys[alone[0]])) - Counter(_NUMBERS.findall(others))
    numbers = [int(number) for number in own.elements()]
    named = [v for v in views if numbers == [v.rank] and v.rank != alone[0]]
    if not named:
        return []
    waits = [view for view in views if view.rank == alone[0]]
    finding = _setter(case, keys[alone[0]], named[0], waits)
    finding.confidence = sure(Ground.KEY_NUMBER)
    finding.clues = [in_op(waits), in_op([view for view in views if view.rank != alone[0]])]
    return [finding]


def _asked(view: RankView) -> tuple[str, int]:
    """The key, and the rank that is to set it; "" and -1 where they do not show."""
    frame = next((frame for frame in reversed(view.path) if frame.key), None)
    if frame is None:
        return "", next((fr.values[SETTER] for fr in view.path if SETTER in fr.values), -1)
    named = named_in(frame.key)
    return frame.key, frame.values.get(SETTER, -1 if named is None else named)


def _setter(case: Case, key: str, view: RankView, few: list[RankView]) -> Finding:
    story = f.UnsetKey(key or f.A_KEY, ranks_of(few), op_of([view]))
    return finding_on(case, "order", [view], story, confidence=sure(Ground.KEY_SETTER))


def _waits(case: Case, key: str, few: list[RankView]) -> Finding:
    story = f.UnsetKey(key or f.A_KEY)
    return finding_on(case, "not_entered", few, story, confidence=sure(Ground.UNSET_KEY_IN_STACKS))
