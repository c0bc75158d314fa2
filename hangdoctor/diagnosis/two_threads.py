"""Ranks of which two threads are in collectives at once.

Collectives of one group pair by the order in which each rank calls them. Two threads of a process have
no order of their own, so that the one comes first on some ranks and the other elsewhere: then both wait
for good. Groups of their own would be no such fault; where stacks show that the two differ, this is not
said.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.capture import Frame, ThreadSample
from ..stacks.place_rules import Place
from ..stacks.place_search import BUFFERS, GRADIENTS, HANDLE, STORE, find_place, python_frames
from ..text.late import late
from . import findings as f
from .case import Case, finding_on, in_op, ranks_of, where_held
from .confidence import Ground, sure
from .findings import Against, Clue, Finding, Why
from .held_by import python_threads
from .view import RankView, motion_of

_GROUP = late(r"\bgroup\s*=\s*([\w.\[\]'\"]+)")
_WORLD = late(r"None$|(?:^|\.)WORLD$")
_UNKNOWN = ""
_FRAMES = 4  # of a thread's stack, in evidence
Beside = tuple[ThreadSample, Place]


def find(case: Case, waiting: Sequence[RankView]) -> Finding | None:
    """The finding on more than half of the ranks, with the same call in another thread of each."""
    if len(waiting) != case.world_size:
        return None
    found: dict[object, dict[int, Beside]] = {}
    for view in waiting:
        for thread, place in _beside(view):
            found.setdefault((place.op, place.at), {}).setdefault(view.rank, (thread, place))
    both = max(found.values(), key=len, default={})
    if len(both) < 2 or 2 * len(both) <= len(waiting):
        return None
    return _finding(case, waiting, both)


def _beside(view: RankView) -> list[Beside]:
    """The other threads of a rank in a collective that may be of the group of its own."""
    if not _is_collective(view.place) or view.thread is None:
        return []
    others = [t for t in python_threads(view) if t.tid != view.thread.tid and _is_by_python(t)]
    stuck = [t for t in others if motion_of(view.capture, t.tid) not in ("moved", "looping")]
    placed = [(thread, find_place(thread.frames)) for thread in stuck]
    return [
        (thread, place)
        for thread, place in placed
        if _is_collective(place) and place.at != view.place.at and _may_share(view.place, place)
    ]


def _is_by_python(thread: ThreadSample) -> bool:
    """Whether Python started it: the main thread waits for autograd's own threads, which come to the
    user's code as well, and is in no collective beside them.
    """
    python = python_frames(thread.frames)
    outermost = python[-1] if python else None
    return thread.name == "MainThread" or (
        outermost is not None and outermost.file.endswith("threading.py")
    )


def _is_collective(place: Place) -> bool:
    return place.kind == "collective" and place.op not in (HANDLE, STORE)


def _group(place: Place) -> str | None:
    """ "world", what the call's line names, "" where it is unknown; None: one of a library's."""
    if place.op in (GRADIENTS, BUFFERS):
        return _UNKNOWN  # the whole job's, unless the wrapper was given another one
    named = _GROUP.search(place.caller.code) if place.caller is not None else None
    if named is not None:
        return "world" if _WORLD.search(named[1]) else named[1]
    if place.group in ("world", _UNKNOWN):
        return place.group
    return None


def _may_share(one: Place, other: Place) -> bool:
    """Whether the calls may be of one group: nothing shows that they are not."""
    groups = {_group(one), _group(other)}
    return None not in groups and len(groups - {_UNKNOWN}) < 2


def _finding(case: Case, waiting: Sequence[RankView], both: dict[int, Beside]) -> Finding:
    having = [view for view in waiting if view.rank in both]
    thread, place = both[having[0].rank]
    one_group = {_group(having[0].place), _group(place)} == {"world"}
    rest = [view for view in waiting if view.rank not in both]
    # One that has not called it has called its own first: the others wait in the other order.
    alone = len(rest) == 1 and one_group and _in_one_call([*having, *rest])
    mine, beside = _op(having[0].place), _op(place)
    without = rest[0].rank if alone else -1
    story = f.TwoThreads(ranks_of(having), mine, beside, one_group, without)
    ground = Ground.TWO_THREADS if one_group else Ground.TWO_THREADS_PERHAPS
    odd = rest if alone else having
    finding = finding_on(case, "order", odd, story, confidence=sure(ground))
    finding.where = where_held(case, having, odd[0] if alone else None)
    finding.waiters = None
    finding.clues = [in_op(having), _thread_clue(having, thread)]
    if rest:
        finding.clues.append(in_op(rest))
    finding.against = [Against("in_communication", ranks_of(having), Why.CALLED_IN_ORDER)]
    return finding


def _in_one_call(views: Sequence[RankView]) -> bool:
    return len({(view.place.op, view.place.at) for view in views}) == 1


def _op(place: Place) -> f.Op:
    return f.Op(place.op, frame=place.frame, caller=place.caller)


def _thread_clue(views: Sequence[RankView], thread: ThreadSample) -> Clue:
    """The innermost frames of the other thread."""
    frames: list[Frame] = python_frames(thread.frames)[:_FRAMES]
    return Clue("stack", ranks_of(views), f.At(tuple(frames)))
