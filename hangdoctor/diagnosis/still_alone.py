"""The one rank of an ended job that had not moved at its end, where nothing more can be said: a lead."""

from __future__ import annotations

from ..stacks.user_code import is_users
from .case import Case
from .findings import StillAlone
from .view import RankView


def still_alone(case: Case) -> StillAlone | None:
    """None where several had a place, it is no line of the user's, or a rank was not seen. Who is in
    an operation that has not ended did not move, either.
    """
    if not case.capture.over or case.unseen or len(case.views) < 2:
        return None
    still = [view for view in case.views if view.capture.samples]
    if len(still) != 1 or any(map(_is_inside, case.views)):
        return None
    [view] = still
    frame, samples = view.place.frame, view.capture.samples
    if frame is None or view.place.communicates or not is_users(frame) or len(samples) < 2:
        return None
    return StillAlone(view.rank, frame, samples[-1].at_s - samples[0].at_s)


def _is_inside(view: RankView) -> bool:
    ops = view.capture.ops
    return ops is not None and bool(ops.unfinished())
