"""A rank that computes in a ``while`` of its own and calls a library, or a function of its own, at each
turn: it is found in other functions each time, and gets nowhere.

A ``for`` comes to an end, and a counter of the loop shows its turns: those are slow. What a ``while`` asks
for may never come, as a bisection whose sides do not meet, or rows that no text fits into. The loop of the
training itself, in which the ranks are that wait, and torch's own work get on: a module, a backward pass, an
optimizer. Arithmetic of tensors is the loop's own.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.capture import Frame
from ..stacks.place_search import find_place, python_frames
from ..stacks.user_code import TORCH, is_comprehension, is_users
from ..text.late import late
from .own_samples import cpu_share, stacks_of
from .position import counters
from .view import RankView

_WHILE = "while"  # `Frame.counts`
_AT_WORK = 0.2  # of the time, on the CPU: eight ranks may share two cores
_LONG_S = 1.0  # from the first sample to the last

_ARITHMETIC = late(r"torch/(?:_tensor|functional|nn/functional|overrides|_ops)\.py$")

_Function = tuple[str, str]  # its name and file


def settle(views: Sequence[RankView]) -> None:
    """Say of which of these ranks all samples found it in one loop of that kind, on the CPU, and no count
    has changed.
    """
    moved = [
        view for view in views if view.motion == "moved" and not view.gone and not view.stopped
    ]
    waiting = [view for view in views if view.waits] if moved else []
    others = {_function(frame) for view in waiting for frame in view.path}
    for view in moved:
        view.spins = _spins(view, others)


def _spins(view: RankView, others: set[_Function]) -> bool:
    seen = stacks_of(view)
    samples = view.capture.samples
    if len(seen) < 2 or samples[-1].at_s - samples[0].at_s < _LONG_S or cpu_share(view) < _AT_WORK:
        return False
    if any(find_place(thread.frames, blocked=True).communicates for thread in seen):
        return False
    return _is_in_one_loop([_outermost_first(thread.frames) for thread in seen], others)


def _outermost_first(frames: Sequence[Frame]) -> list[Frame]:
    return [f for f in reversed(python_frames(frames)) if not is_comprehension(f)]


def _is_in_one_loop(paths: list[list[Frame]], others: set[_Function]) -> bool:
    """Whether the innermost function that all paths have in common turns in a ``while``."""
    common = _in_common(paths)
    if common == 0:
        return False
    loops = [path[common - 1] for path in paths]
    if not is_users(loops[0]) or _function(loops[0]) in others:
        return False
    whole = {counters(path[:common]) for path in paths}
    below = [frame for path in paths for frame in path[common:]]
    turns = all(frame.counts == _WHILE for frame in loops) and len(whole) == 1
    return turns and not any(map(_is_torchs_work, below))


def _is_torchs_work(frame: Frame) -> bool:
    return TORCH.search(frame.file) is not None and _ARITHMETIC.search(frame.file) is None


def _in_common(paths: list[list[Frame]]) -> int:
    """How many frames from the outermost one are of one call: at other lines only in the last of them."""
    count = 0
    for frames in zip(*paths, strict=False):
        if len({_function(frame) for frame in frames}) > 1:
            break
        count += 1
        if len({frame.line for frame in frames}) > 1:
            break
    return count


def _function(frame: Frame) -> _Function:
    return frame.name, frame.file
