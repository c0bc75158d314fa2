"""A rank that computes in a ``while`` of its own and calls a library at each turn: it is found in other
functions each time, and gets nowhere.

A ``for`` comes to an end, and a counter of the loop shows its turns: those are slow. What a ``while`` asks
for may never come, as a bisection whose sides do not meet, or rows that no text fits into.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.capture import Frame
from ..stacks.place_search import find_place, python_frames
from ..stacks.user_code import is_comprehension, is_users
from .held_by_work import cpu_share, stacks_of
from .position import counters
from .view import RankView

_WHILE = "while"  # `Frame.counts`
_AT_WORK = 0.2  # of the time, on the CPU: eight ranks may share two cores
_LONG_S = 1.0  # from the first sample to the last


def spins(view: RankView) -> bool:
    """Whether all samples found it in one loop of that kind, on the CPU, and no count has changed."""
    seen = stacks_of(view)
    if view.motion != "moved" or view.stopped or len(seen) < 2:
        return False
    turns = [_turn(thread.frames) for thread in seen]
    if None in turns or any(turn != turns[0] for turn in turns):
        return False
    if any(find_place(thread.frames, blocked=True).communicates for thread in seen):
        return False
    samples = view.capture.samples
    long = samples[-1].at_s - samples[0].at_s >= _LONG_S
    return long and cpu_share(view) >= _AT_WORK


def _turn(frames: Sequence[Frame]) -> tuple[object, ...] | None:
    """The function with the loop, how it was called, and the counts of all of these; None outside of
    such a loop. Frames are innermost first.
    """
    python = [frame for frame in python_frames(frames) if not is_comprehension(frame)]
    first = next((place for place, frame in enumerate(python) if is_users(frame)), len(python))
    path = python[first:]
    if not path or path[0].counts != _WHILE:
        return None
    called = tuple((frame.name, frame.file, frame.line) for frame in path[1:])
    return path[0].name, path[0].file, called, counters(path)
