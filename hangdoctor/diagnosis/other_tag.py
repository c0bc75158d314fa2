"""The one rank whose sends and receives have another number for their tag than all others'.

A program that gives a message the number of its step as a tag needs the same number on all ranks:
after a restart from checkpoints of different steps, no message of the one rank fits another's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from . import findings as f
from .case import Case, finding_on, in_op, op_of, ranks_of, where_held
from .confidence import Ground, sure
from .findings import Against, Finding, Why
from .position import group_by_operation
from .view import RankView

_TAG = re.compile(r"\b(?:send|recv|source|dest)?tag\s*=\s*(?P<name>[A-Za-z_]\w*)\s*[,)]", re.I)
_ENOUGH = 3  # others that agree: stages of a pipeline may each be at a count of their own


def find(case: Case, waiting: Sequence[RankView]) -> Finding | None:
    """Name it where all ranks wait in transfers, and all but one of them for one number."""
    tags = {view.rank: tag for view in waiting if (tag := _tag(view)) is not None}
    if len(tags) != case.world_size or len({name for name, _ in tags.values()}) != 1:
        return None
    counted = Counter(number for _, number in tags.values()).most_common()
    if len(counted) != 2 or counted[1][1] != 1 or counted[0][1] < _ENOUGH:
        return None
    (usual, _), (strange, _) = counted
    [view] = [v for v in waiting if tags[v.rank][1] == strange]
    others = [v for v in waiting if v is not view]
    op = op_of([view])
    story = f.OtherTag(tags[view.rank][0], strange, usual, op, ranks_of(others))
    finding = finding_on(case, "mismatch", [view], story, confidence=sure(Ground.OTHER_TAG))
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
