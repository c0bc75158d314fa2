"""Waits inside of JAX's compiled functions, which leave no frame: only the user's line shows.

JAX runs ahead of its results: the next call of a compiled function waits for the collectives of the
last one. A line of the user's own code alone could as well wait for anything else, so that it takes
several ranks at one line, and JAX in the stack of any rank of the job.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import structs

from ..stacks.user_code import is_users
from .position import counts
from .view import RankView

_JAX = re.compile(r"(?:^|/)jax/(?:_src|experimental)/")
_OTHER_WAITS = re.compile(r"\bwith\b|\b(?:acquire|get|join|wait|result|recv|sleep)\(")
_CALL = "compiled function"


def settle(views: Sequence[RankView]) -> None:
    """Make it a wait for the device where several ranks of a JAX job block at one line of the user's."""
    if not any(_has_jax(view) for view in views):
        return
    at: dict[object, list[RankView]] = {}
    for view in views:
        if _blocks_in_native_code(view):
            at.setdefault((view.place.at, counts(view)), []).append(view)
    for together in at.values():
        if len(together) > 1:
            for view in together:
                view.place = structs.replace(view.place, kind="device", op=_CALL)


def _has_jax(view: RankView) -> bool:
    threads = [t for sample in view.capture.samples for t in sample.threads]
    return any(_JAX.search(frame.file) for thread in threads for frame in thread.frames)


def _blocks_in_native_code(view: RankView) -> bool:
    """Whether its innermost frame is the user's, and its thread sleeps there in a lock."""
    if view.gone or view.place.kind != "code" or view.motion != "still" or not view.path:
        return False
    innermost, thread = view.path[-1], view.thread
    if thread is None or thread.syscall != "futex" or not is_users(innermost):
        return False
    return "(" in innermost.code and _OTHER_WAITS.search(innermost.code) is None
