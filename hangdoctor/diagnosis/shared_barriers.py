"""Waits in a `multiprocessing.Barrier`, which processes of one job share.

How many it waits for is not known. Where exactly one process of the job is elsewhere, and is no
parent of the others, that one has not come; else nothing is changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..stacks.place_rules import Place
from .view import RankView

_INNERMOST = 5  # frames of a barrier's wait
_SHARED = "multiprocessing/synchronize.py"
_BARRIER = "/threading.py"  # its class is the same for threads and processes


def settle(views: Sequence[RankView]) -> None:
    """Make it a collective where all but one of the ranks wait, some of them in such a barrier."""
    world = max((view.capture.world_size for view in views), default=0)
    if any(view.gone or view.unread for view in views) or len(views) < world:
        return
    inside = [view for view in views if _in_barrier(view)]
    apart = [view for view in views if not view.waits and view not in inside]
    if len(inside) < 2 or len(apart) != 1:
        return
    if apart[0].pid in {view.capture.ppid for view in inside}:
        return  # it started them, and may be no party
    for view in inside:
        own = view.place
        view.place = Place("collective", "Barrier.wait", frame=own.frame, caller=own.caller)


def _in_barrier(view: RankView) -> bool:
    if view.place.kind != "code" or view.got_on or view.stopped or not view.path:
        return False
    frames = view.path[-_INNERMOST:]
    waits = any(f.own_name == "_wait" and f.file.endswith(_BARRIER) for f in frames)
    return waits and frames[-1].file.endswith(_SHARED)
