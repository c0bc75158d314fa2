"""A rank that waits for a task of its `multiprocessing.Pool`: which worker is at it, or that none is.

A worker that dies takes its task with it. The pool starts another one and says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.capture import Frame, Process
from ..stacks.user_code import is_users
from . import findings as f
from .findings import Holding
from .view import RankView

_POOL = "multiprocessing/pool.py"
_RESULTS = frozenset({"get", "next"})
_TASKS = "multiprocessing/queues.py"  # an idle worker waits there for its next task
_INNERMOST = 5


def awaits_task(view: RankView) -> bool:
    """Whether its thread waits for what a pool's task returns."""
    frames = view.path[-_INNERMOST:]
    return any(x.file.endswith(_POOL) and x.own_name in _RESULTS for x in frames)


def find(view: RankView) -> Holding | None:
    """The worker that is in the user's code, or that all of them are idle; None where neither is seen."""
    if not awaits_task(view):
        return None
    workers = [(child, frames) for child in view.capture.children if (frames := _inside(child))]
    for child, frames in workers:
        own = next((frame for frame in frames if is_users(frame)), None)
        if own is not None:
            return f.AtWorker(child.pid, own)
    if not workers or not all(_idle(frames) for _, frames in workers):
        return None
    if not all(map(_was_read, view.capture.children)):
        return None  # one of those may be at it
    return f.OnPool(len(workers))


def _was_read(process: Process) -> bool:
    threads = process.samples[-1].threads if process.samples else []
    return process.gone or any(thread.frames for thread in threads)


def _inside(process: Process) -> list[Frame]:
    """The frames of a pool's worker that are inside its loop; none of any other process."""
    threads = process.samples[-1].threads if process.samples and not process.gone else []
    for thread in threads:
        for n, frame in enumerate(thread.frames):
            if frame.name == "worker" and frame.file.endswith(_POOL):
                return thread.frames[:n]
    return []


def _idle(frames: Sequence[Frame]) -> bool:
    return frames[-1].file.endswith(_TASKS)
