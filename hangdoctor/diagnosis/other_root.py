"""The one rank that names another root for a collective than all others do.

Small messages to a root are on their way before the root asks for them: all but the two that take
themselves for the root are past the call, and those two wait in it. The lines of all say which root
they mean, as ``comm.gather(x, root=best)``; mpi4py has no frame that does.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import findings as f
from . import other_tag
from .case import Case, op_of, ranks_of
from .confidence import Ground
from .findings import Finding
from .view import RankView

_OTHERS = 2  # that agree, at least


def find(case: Case, waiting: Sequence[RankView]) -> Finding | None:
    """Name it where the lines of all ranks name a root, and all others name one."""
    roots = {view.rank: root for view in waiting if (root := _root(view)) is not None}
    strange = other_tag.strange_one(roots, _OTHERS) if len(roots) == case.world_size else None
    if strange is None:
        return None
    view, others = other_tag.apart(waiting, strange)
    own, usual = roots[strange], roots[others[0].rank]
    story = f.OtherTag("root", own, usual, op_of([view]), ranks_of(others), is_root=True)
    return other_tag.finding_of(case, story, view, others, Ground.ROOTS)


def _root(view: RankView) -> int | None:
    """The root that the line of its collective names."""
    frame = view.place.frame
    if view.place.kind != "collective" or frame is None or "root" not in frame.code:
        return None
    return frame.values.get("root")
