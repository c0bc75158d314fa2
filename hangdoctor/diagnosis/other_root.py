"""The one rank that names another root for a collective than all others do.

Small messages to a root are on their way before the root asks for them: all but the two that take
themselves for the root are past the call, and those two wait in it. The lines of all say which root
they mean, as ``comm.gather(x, root=best)``; mpi4py has no frame that does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from . import findings as f
from .case import Case, finding_on, in_op, op_of, ranks_of, where_held
from .confidence import Ground, sure
from .findings import Against, Finding, Why
from .position import group_by_operation
from .view import RankView

_OTHERS = 2  # that agree, at least


def find(case: Case, waiting: Sequence[RankView]) -> Finding | None:
    """Name it where the lines of all ranks name a root, and all others name one."""
    roots = {view.rank: root for view in waiting if (root := _root(view)) is not None}
    counted = Counter(roots.values()).most_common()
    if len(roots) != case.world_size or len(counted) != 2:
        return None
    (usual, many), (strange, few) = counted
    if few != 1 or many < _OTHERS:
        return None
    [view] = [v for v in waiting if roots[v.rank] == strange]
    others = [v for v in waiting if v is not view]
    story = f.OtherTag("root", strange, usual, op_of([view]), ranks_of(others), is_root=True)
    finding = finding_on(case, "mismatch", [view], story, confidence=sure(Ground.ROOTS))
    finding.where = where_held(case, others, view)
    finding.clues = [in_op(side) for side in ([view], *group_by_operation(others))]
    finding.against = [Against("in_communication", ranks_of(others), Why.NOT_ONE_OPERATION)]
    return finding


def _root(view: RankView) -> int | None:
    """The root that the line of its collective names."""
    frame = view.place.frame
    if view.place.kind != "collective" or frame is None or "root" not in frame.code:
        return None
    return frame.values.get("root")
