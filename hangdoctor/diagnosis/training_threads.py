"""Ranks that train in a thread, while the main thread answers a probe or waits for a signal.

Where all main threads rest at one place, and most ranks have a thread of one function of the user's in a
communication, that thread says where each rank is. A rank without one has lost it: an exception ends a
thread alone, and its process stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.capture import Frame, ThreadSample
from ..stacks.place_rules import Place
from ..stacks.place_search import find_place, python_frames
from ..stacks.user_code import is_users
from ..text.late import late
from .held_by import python_threads
from .view import Looks, RankView, motion_of, place_by

_RESTS = late(
    r"(?:p?poll|p?select6?|epoll_p?wait|accept4?|pause|rt_sig\w+|clock_nanosleep|nanosleep|futex)\b"
)
_AT_REST = frozenset({"code", "queue"})
# Its root, or who sends, may do that when it has something: the others then wait rightly.
_FROM_ONE = frozenset(
    {"broadcast", "broadcast_object_list", "scatter", "scatter_object_list", "recv", "irecv"}
)
_Function = tuple[str, str]
_Placed = tuple[ThreadSample, Place]


def settle(views: Sequence[RankView]) -> None:
    """Take the threads that train for where their ranks are, and note who has none."""
    living = [view for view in views if not view.gone]
    if len(living) < 3 or not _all_at_rest(living):
        return
    found: dict[_Function, dict[int, list[_Placed]]] = {}
    for view in living:
        for thread in python_threads(view):
            function = _function_of(thread)
            if function is not None:
                placed = thread, _place_of(view, thread)
                found.setdefault(function, {}).setdefault(view.rank, []).append(placed)
    training = [of for of in found.values() if _trains(living, of)]
    if len(training) == 1:
        _judge(living, {rank: placed for rank, [placed] in training[0].items()})


def _judge(living: Sequence[RankView], training: dict[int, _Placed]) -> None:
    looks = Looks()
    names = [thread.name for thread, _ in training.values()]
    for view in living:
        if view.rank in training:
            thread, place = training[view.rank]
            place_by(view, thread, place, looks=looks)
        else:
            view.lost_thread = names[0]


def _all_at_rest(views: Sequence[RankView]) -> bool:
    """Whether all main threads are asleep at one line, in no communication."""
    mains = [
        (view, thread) for view in views for thread in python_threads(view) if _is_main(thread)
    ]
    lines = {tuple((f.name, f.file, f.line) for f in thread.frames) for _, thread in mains}
    return len(mains) == len(views) and len(lines) == 1 and all(_rests(*one) for one in mains)


def _rests(view: RankView, main: ThreadSample) -> bool:
    asleep = main.state == "S" and motion_of(view.capture, main.tid) in ("still", "stirred")
    waits = not main.syscall or _RESTS.match(main.syscall) is not None
    place = _place_of(view, main)
    return asleep and waits and place.kind in _AT_REST and not place.delegated


def _trains(living: Sequence[RankView], of: dict[int, list[_Placed]]) -> bool:
    """Whether most ranks are stuck in a communication with their one thread of this function, and none
    pauses in it: what is done once a minute is no training.
    """
    if any(len(placed) != 1 for placed in of.values()):
        return False
    stuck = 0
    for view in living:
        for thread, place in of.get(view.rank, ()):
            if place.kind in ("collective", "p2p"):
                by_one = place.op in _FROM_ONE or place.group == "sub"
                if by_one and len(of) < len(living):
                    return False
                stuck += motion_of(view.capture, thread.tid) in ("still", "stirred")
            elif _pauses(thread):
                return False
    return 2 * stuck > len(living)


def _pauses(thread: ThreadSample) -> bool:
    inner = python_frames(thread.frames)[0]
    return "nanosleep" in thread.syscall or inner.file.endswith("threading.py")


def _function_of(thread: ThreadSample) -> _Function | None:
    """The user's outermost function of a thread that Python started; None of any other."""
    python = python_frames(thread.frames)
    if not python or _is_main(thread) or not python[-1].file.endswith("threading.py"):
        return None
    own: Frame | None = next((frame for frame in reversed(python) if is_users(frame)), None)
    return (own.name, own.file) if own is not None else None


def _place_of(view: RankView, thread: ThreadSample) -> Place:
    return find_place(thread.frames, blocked=motion_of(view.capture, thread.tid) == "still")


def _is_main(thread: ThreadSample) -> bool:
    return thread.name == "MainThread"
