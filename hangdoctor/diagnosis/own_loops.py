"""Ranks that wait in a loop of the program's own: ask for a file, a key or a count, sleep, and ask again.

Samples find such a rank asleep, or in what the loop calls; that is no progress. A loop that sleeps by its
own clock in each turn looks the same where no sample finds it at other work.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ..model.capture import Frame, ThreadSample
from ..stacks.place_search import find_place, python_frames
from ..stacks.user_code import is_standard, is_users
from .case import Case, ranks_of
from .position import counters
from .sleepers import SLEEPS, own_threads
from .view import RankView

_Holding = tuple[int, tuple[int, ...]]  # a value, and the ranks on which a variable has it


class Differs(Struct, frozen=True):
    """A whole number of the loop's function that fewer than half of the ranks have alone."""

    name: str
    few: _Holding
    most: _Holding


class OwnLoop(Struct, frozen=True):
    """All ranks in one such loop: how often they were found there, and whose stack to read next."""

    ranks: tuple[int, ...]
    frame: Frame
    samples: int
    seconds: float  # from the first of them to the last
    differs: Differs | None
    asked: tuple[tuple[str, int, int], ...]  # node, pid and rank: of the few and of the others


def polls(view: RankView) -> bool:
    """Whether all samples found it in one function of the user's, mostly asleep for a time, and no
    counter of a loop has changed.
    """
    seen = _with_stacks(view)
    if len(seen) < 2 or view.stopped or view.motion in ("still", "unknown", "running"):
        return False
    asleep = sum(thread.syscall in SLEEPS for thread in seen)
    if 2 * asleep < len(seen) or not all(map(_is_own_code, seen)):
        return False
    return len({_state(thread) for thread in seen}) == 1


def all_in_one(case: Case) -> OwnLoop | None:
    """The loop that all ranks are in; None where one is elsewhere, or was not seen."""
    views = case.alive
    if case.gone or case.unseen or case.unread or len(views) < 2 or not all(map(polls, views)):
        return None
    frames = [_own_frames(_with_stacks(view)[-1])[0] for view in views]
    if len({(frame.name, frame.file) for frame in frames}) > 1:
        return None
    fewest = min(views, key=lambda view: len(_with_stacks(view)))
    times = [s.at_s for s in fewest.capture.samples if any(t.frames for t in s.threads)]
    differs = _difference(views)
    return OwnLoop(
        ranks_of(views),
        frames[0],
        len(_with_stacks(fewest)),
        seconds=times[-1] - times[0],
        differs=differs,
        asked=_to_ask(views, differs),
    )


def texts(view: RankView) -> dict[str, int]:
    """The texts of the loop's function, as checksums, that were the same in all samples."""
    first, *later = [_own_frames(thread)[0].texts for thread in _with_stacks(view)]
    same = (name for name in first if all(one.get(name) == first[name] for one in later))
    return {name: first[name] for name in same}


def _with_stacks(view: RankView) -> list[ThreadSample]:
    return [thread for thread in own_threads(view) if thread.frames]


def _own_frames(thread: ThreadSample) -> list[Frame]:
    return [frame for frame in python_frames(thread.frames) if is_users(frame)]


def _is_own_code(thread: ThreadSample) -> bool:
    """Whether it is in the user's code, and in nothing but Python's own library below that."""
    if find_place(thread.frames).kind != "code":
        return False
    python = python_frames(thread.frames)
    users = [n for n, frame in enumerate(python) if is_users(frame)]
    return bool(users) and all(is_standard(frame) for frame in python[: users[0]])


def _state(thread: ThreadSample) -> tuple[object, ...]:
    own = _own_frames(thread)
    return tuple((frame.name, frame.file) for frame in own), counters(own)


def _difference(views: Sequence[RankView]) -> Differs | None:
    """None where all have one value, or more than two of them."""
    of_rank = {view.rank: _values(view) for view in views}
    for name in sorted(set.intersection(*map(set, of_rank.values()))):
        by_value: dict[int, list[int]] = {}
        for rank, values in of_rank.items():
            by_value.setdefault(values[name], []).append(rank)
        few, *most = sorted(by_value.items(), key=lambda one: len(one[1]))
        if len(most) == 1 and len(few[1]) < len(most[0][1]):
            return Differs(name, (few[0], tuple(few[1])), (most[0][0], tuple(most[0][1])))
    return None


def _values(view: RankView) -> dict[str, int]:
    """The whole numbers of the loop's function that were the same in all samples."""
    first, *later = [_own_frames(thread)[0].values for thread in _with_stacks(view)]
    return {
        name: value
        for name, value in first.items()
        if all(values.get(name) == value for values in later)
    }


def _to_ask(views: Sequence[RankView], differs: Differs | None) -> tuple[tuple[str, int, int], ...]:
    first = differs.few[1][0] if differs is not None else views[0].rank
    others = [v for v in views if differs is None or v.rank in differs.most[1]]
    chosen = [v for v in views if v.rank == first] + [v for v in others if v.rank != first][:1]
    return tuple((view.node, view.pid, view.rank) for view in chosen)
