"""Ranks that ask again and again whether a send or receive is done: ``while not request.Test(): sleep(0.1)``.

Such a loop runs, so that its thread is never still. It is the same wait where the loops of the program
around it have not counted on in any sample; without a count it may as well be the next one at that line.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.capture import RankCapture
from ..model.frame import Frame
from ..stacks.call_peers import begun_by
from ..stacks.place_rules import Place
from ..stacks.place_search import python_frames
from .view import RankView


def settle(views: Sequence[RankView]) -> None:
    """Take those that have not counted on for still, and all others for code of the program's own."""
    for view in views:
        if view.gone or view.thread is None or view.motion == "still" or not _polls(view):
            continue
        if _has_not_counted(view.capture, view.thread.tid):
            view.motion = "still"
        else:
            view.place = Place("code", frame=view.place.frame, caller=view.place.caller)


def _polls(view: RankView) -> bool:
    inner = view.path[-1] if view.path else None
    return inner is not None and bool(inner.handle) and begun_by(inner.code) == inner.handle


def _has_not_counted(capture: RankCapture, tid: int) -> bool:
    """Whether all samples have one stack, with the same numbers in it, some of a loop's count."""
    found = [
        python_frames(thread.frames)
        for sample in capture.samples
        for thread in sample.threads
        if thread.tid == tid
    ]
    if len(found) < 2 or len(found) < len(capture.samples):
        return False
    counted = any(frame.counts in frame.values for frame in found[-1] if frame.counts)
    return counted and all(_numbers(frames) == _numbers(found[0]) for frames in found)


def _numbers(frames: Sequence[Frame]) -> list[tuple[str, str, dict[str, int]]]:
    return [(frame.name, frame.file, frame.values) for frame in frames]
