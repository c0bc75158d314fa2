"""Pass: a rank whose collective was interrupted by a function that makes another one.

Python runs the handler of a signal between two lines of whatever the main thread does, a finalizer
as well. A scheduler's notice or a person's `kill` reaches one process, and its handler then calls a
barrier or a broadcast to tell the others, which are elsewhere.
"""

from __future__ import annotations

from itertools import pairwise

from ..model.capture import Frame
from ..stacks.place_rules import Place
from ..stacks.place_search import find_place
from ..stacks.user_code import C10D, is_outer
from . import findings as f
from .case import Case, finding_on, in_op, op_of, ranks_of, stack_clue
from .confidence import Ground, sure
from .draft import Draft
from .findings import Finding
from .position import group_by_operation
from .view import RankView

# Those that make no other public call: within them nothing but a handler makes one
_PRIMITIVE = frozenset(
    "barrier all_reduce broadcast reduce all_gather all_gather_into_tensor reduce_scatter reduce_scatter_tensor"
    " all_to_all all_to_all_single gather scatter send recv isend irecv".split()
)


def run(case: Case, draft: Draft) -> None:
    """Name it in place of what its other call looks like, unless something else holds ranks that do
    not wait, or were not seen.
    """
    waiting = {view.rank for view in case.waiting}
    others = {rank for finding in draft.findings for rank in finding.ranks} - waiting
    if others or case.silent or case.absent:
        return
    finding = _find(case)
    if finding is not None:
        draft.findings, draft.remaining = [finding], None
        draft.status = draft.status if draft.status == "failed" else "hang"


def _find(case: Case) -> Finding | None:
    """The few ranks that wait in a call of such a function, while others wait elsewhere."""
    within = [(view, at) for view in case.waiting if (at := _interrupted(view)) is not None]
    if not within or 2 * len(within) > len(case.waiting):
        return None
    view, at = within[0]
    outer = find_place(view.path[: at[0] + 1][::-1])
    if any(view.path[at[1]] != other.path[there[1]] for other, there in within[1:]):
        return None
    views = [view for view, _ in within]
    return _finding(case, views, outer, view.path[at[1]])


def _interrupted(view: RankView) -> tuple[int, int] | None:
    """Where in its path a collective calls a function of somebody else's, which makes a collective."""
    calls = [at for at, frame in enumerate(view.path) if _is_call(frame)]
    for outer, inner in pairwise(calls):
        between = view.path[outer + 1 : inner]
        # Straight from a call, and from none of those that unpickle objects of the user's.
        if between and is_outer(between[0]) and view.path[outer].own_name in _PRIMITIVE:
            own = [at for at, frame in enumerate(between, outer + 1) if is_outer(frame)]
            return outer, own[-1]
    return None


def _is_call(frame: Frame) -> bool:
    return frame.file.endswith(C10D)


def _finding(case: Case, views: list[RankView], outer: Place, handler: Frame) -> Finding:
    others = [view for view in case.waiting if view not in views]
    story = f.Interrupted(outer.op or "a collective", handler, op_of(views), ranks_of(others))
    finding = finding_on(case, "order", views, story, confidence=sure(Ground.INTERRUPTED))
    finding.clues = [stack_clue(views, ""), *(in_op(side) for side in group_by_operation(others))]
    return finding
