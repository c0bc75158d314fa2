"""The rank that alone makes a collective call: its program runs that line on one rank only."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.capture import Frame
from ..stacks import one_rank
from ..stacks.place_search import STORE
from ..stacks.user_code import C10D, is_users
from . import deadends
from . import findings as f
from .case import Case, finding_on, in_op, op_of, ranks_of, sides_of, where_held
from .confidence import Ground, sure
from .draft import Draft
from .findings import Against, Apart, Finding, Why
from .left_open import names_both_sides
from .position import group_by_operation, steps
from .view import RankView

_TORCH = (C10D, "torch/distributed/c10d_logger.py")
_OF_ANY_KIND = "functional collective"


def find(case: Case, waiting: list[RankView]) -> Finding | None:
    """One rank in a collective under a condition that holds for it alone, while all others wait in
    other operations, under no condition on the rank: none of them comes to its call.
    """
    under = {view.rank: asked for view in waiting if (asked := _conditions(view))}
    if len(waiting) != case.world_size or len(waiting) < 2 or len(under) != 1:
        return None
    [(rank, conditions)] = under.items()
    [view] = [v for v in waiting if v.rank == rank]
    alone = [frame.only for frame in conditions if _holds_for(frame, rank)]
    others = [v for v in waiting if v is not view]
    if not alone or not _takes_all(view) or _may_answer(view, others):
        return None
    replicas_alone = view.place.group == "dp" and case.capture.layout is None
    if deadends.in_smaller_group(view) and not replicas_alone:
        return None  # a group that its line names has other members, which it may wait for rightly
    story = f.InOther(
        Apart.CALLED_ALONE,
        op_of([view]),
        ranks_of(others),
        op_of(others),
        sides=sides_of(others),
        condition=alone[-1],
    )
    finding = finding_on(case, "order", [view], story, confidence=sure(Ground.CALLED_ALONE))
    finding.where = where_held(case, others, view)
    finding.clues = [in_op(side) for side in ([view], *group_by_operation(others))]
    finding.against = [Against("in_communication", ranks_of(others), Why.NOT_ONE_OPERATION)]
    return finding


def run(case: Case, draft: Draft) -> None:
    """The same instead of both sides of a mismatch, of which the records do not show who is wrong."""
    both = [finding for finding in draft.findings if names_both_sides(finding)]
    if len(both) != 1 or len(draft.findings) != 1:
        return
    waiting = [view for view in case.alive if view.place.communicates and not view.got_on]
    alone = find(case, waiting)
    if alone is not None and set(alone.ranks) < set(both[0].ranks):
        alone.add_clues(both[0].clues)
        draft.findings = [alone]


def under_one(views: Sequence[RankView]) -> tuple[tuple[int, ...], str]:
    """The ranks that alone come to their operation under a condition on the rank, and that one; of all
    of them, or of several conditions, none.
    """
    found = {view.rank: asked[-1].only for view in views if (asked := _conditions(view))}
    if len(found) == len(views) or len(set(found.values())) != 1:
        return (), ""
    return tuple(sorted(found)), next(iter(found.values()))


def _takes_all(view: RankView) -> bool:
    """Whether others have to make its call, too: a key of the store one rank sets."""
    return view.place.kind == "collective" and view.place.op != STORE


def _conditions(view: RankView) -> list[Frame]:
    return [frame for frame in steps(view) if frame.only]


def _holds_for(frame: Frame, rank: int) -> bool:
    return one_rank.let_through(frame.only) in (rank, one_rank.ANY)


def _may_answer(view: RankView, others: list[RankView]) -> bool:
    """Whether another one is in a call of that name, which may be the other side of it; not where the
    user's lines call other functions of a library, as `trainer.test` and `trainer.fit`.
    """
    op, entry = view.place.op, _entry(view)
    alike = [other for other in others if other.place.op == op]
    return op != _OF_ANY_KIND and any(not entry or _entry(o) in ("", entry) for o in alike)


def _entry(view: RankView) -> str:
    """The function that the innermost line of the user's calls; "" where it makes the operation's call
    itself, or none is known.
    """
    frames = view.thread.frames if view.thread is not None else []
    user = next((n for n, frame in enumerate(frames) if is_users(frame)), 0)
    called = frames[user - 1] if user > 0 else None
    return "" if called is None or called.file.endswith(_TORCH) else called.name
