"""Groups that their own members make alone (`use_local_synchronization`): such a call waits for
those members alone. Ranks that make several of them in different orders wait for one another.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import findings as f
from .case import Case, finding_on, in_op, op_of, where_held
from .confidence import Ground, sure
from .findings import Clue, Finding
from .own_members import missed
from .view import RankView

_OWN = "own ranks"  # the list of a frame


def all_local(waiting: Sequence[RankView]) -> bool:
    """Whether all are in such calls."""
    return bool(waiting) and all(_members(view) for view in waiting)


def find(case: Case, waiting: Sequence[RankView]) -> Finding | None:
    """The rank whose stack shows another such group than all others of one wait in, else all of them; None where
    one is in something else.
    """
    if not all_local(waiting):
        return None
    asked = {view.rank: _members(view) for view in waiting}
    apart = missed(asked)
    views, ground = list(waiting), Ground.RING_BY_STACKS
    story: f.Story = f.Ring()
    if apart is not None:
        rank, members, present = apart
        views = [view for view in waiting if view.rank == rank]
        story = f.OwnOrder(op_of(views), asked[rank], members, present)
        ground = Ground.OWN_ORDER
    finding = finding_on(case, "order", views, story, confidence=sure(ground))
    finding.where = where_held(case, waiting, views[0])
    finding.clues = [in_op(list(waiting))]
    finding.clues += [Clue("stack", (r,), f.AsksFor(asked[r])) for r in sorted(asked)]
    return finding


def _members(view: RankView) -> tuple[int, ...]:
    found = next((frame.lists[_OWN] for frame in view.path if _OWN in frame.lists), [])
    return tuple(sorted(found))
