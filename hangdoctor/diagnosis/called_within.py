"""A few ranks that wait in a call which was made from inside the one that all others wait in: by a hook,
or by the handler of a signal that they alone got. A lead: the others may as well have left it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import dropwhile

from ..model.capture import Frame
from ..stacks.user_code import is_users
from .case import ranks_of
from .view import RankView

Within = tuple[tuple[int, ...], Frame]


def few_within(groups: Sequence[Sequence[RankView]]) -> Within | None:
    """The ranks of the smaller of two sides, and the frame of the user's that the other side's call
    led to; None where their stacks part before it.
    """
    if len(groups) != 2 or len(groups[1]) >= len(groups[0]):
        return None
    most, few = groups
    found = [_beyond(view, other) for view in few for other in most]
    frames = {str(frame) for frame in found if frame is not None}
    if None in found or len(frames) != 1 or found[0] is None:
        return None
    return ranks_of(few), found[0]


def _beyond(view: RankView, other: RankView) -> Frame | None:
    """The first frame of the user's after all frames of the other one."""
    outer = [_at(frame) for frame in other.path]
    if not outer or [_at(frame) for frame in view.path[: len(outer)]] != outer:
        return None
    return next(dropwhile(lambda frame: not is_users(frame), view.path[len(outer) :]), None)


def _at(frame: Frame) -> tuple[str, str, int]:
    return frame.name, frame.file, frame.line
