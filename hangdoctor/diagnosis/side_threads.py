"""Ranks of which two threads communicate: a training loop, and one that evaluates beside it.

Where the main thread waits for a lock, an event or a queue, a thread in a collective says where the
rank is. Not so where other ranks run that thread's call beside their main thread's own: then the main
thread waits for something else, and is what is missing there.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from ..model.capture import ThreadSample
from ..stacks.place_rules import Place
from ..stacks.place_search import find_place, python_frames
from .held_by import python_threads
from .view import Look, RankView, motion_of


def settle(views: Sequence[RankView]) -> None:
    """Go back to the main thread of the ranks where another one was taken for it."""
    others = [view for view in views if view.waits and _is_main(view.thread)]
    for view in views:
        if view.waits and not _is_main(view.thread) and _beside(view.place, others):
            _take_main(view)


def _is_main(thread: ThreadSample | None) -> bool:
    return thread is not None and thread.name == "MainThread"


def _beside(place: Place, others: Sequence[RankView]) -> bool:
    """Whether a rank whose main thread communicates is in this call with another thread."""
    for view in others:
        beside = [thread for thread in python_threads(view) if not _is_main(thread)]
        for thread in beside:
            found = find_place(thread.frames, blocked=True)
            if (found.op, found.at) == (place.op, place.at) and place.at != view.place.at:
                return True
    return False


def _take_main(view: RankView) -> None:
    main = next((thread for thread in python_threads(view) if _is_main(thread)), None)
    if main is None:
        return
    motion = motion_of(view.capture, main.tid)
    if motion != "still":
        return  # it may get on
    place = find_place(main.frames, blocked=True)
    view.thread, view.motion = main, motion
    view.place = structs.replace(place, delegated=False)
    view.look = Look(python_frames(main.frames)[::-1])
