"""The samples of a rank that have the stack of its own thread."""

from __future__ import annotations

from ..model.capture import ProcessSample, ThreadSample
from .view import RankView

_SHORTEST_S = 0.2  # between two samples


def seen_threads(view: RankView) -> list[tuple[ProcessSample, ThreadSample]]:
    """The rank's own thread in each sample that has its stack."""
    if view.thread is None:
        return []
    own = view.thread.tid
    return [(s, t) for s in view.capture.samples for t in s.threads if t.tid == own and t.frames]


def stacks_of(view: RankView) -> list[ThreadSample]:
    """The rank's own thread where samples have its stack, in their order."""
    return [thread for _, thread in seen_threads(view)]


def cpu_share(view: RankView) -> float:
    """CPU time of its thread, as a share of the time between the samples; 1 where that is too short."""
    seen = seen_threads(view)
    if len(seen) < 2:
        return 1.0
    (first, before), (last, after) = seen[0], seen[-1]
    seconds = last.at_s - first.at_s
    return (after.cpu_s - before.cpu_s) / seconds if seconds >= _SHORTEST_S else 1.0
