"""Ranks that sleep by their own clock in each turn of a loop, as the control of a robot does.

Samples find most of them asleep at the same line. What shows that the loop goes on is that a rank was in
a collective of all ranks in one sample, and is past it: all have come to that one. Those that no sample
found there are taken to go on as it does where they sleep at its line, and wake up as often.
"""

from __future__ import annotations

from ..model.capture import ThreadSample
from ..stacks.place_rules import Place
from ..stacks.place_search import GRADIENTS, find_place
from .case import Case
from .view import RankView

SLEEPS = frozenset({"clock_nanosleep", "nanosleep"})
_AS_OFTEN = 0.5  # of the context switches of one that was seen to go on


def own_threads(view: RankView) -> list[ThreadSample]:
    """The rank's own thread in all samples that have it."""
    own = view.thread
    threads = [t for s in view.capture.samples for t in s.threads]
    return [t for t in threads if own is not None and t.tid == own.tid]


def went_on(case: Case) -> tuple[list[RankView], Place] | None:
    """The ranks that were in a collective of all ranks, and that one, where all others sleep as these do;
    None where samples do not show so.
    """
    passed = {view.rank: place for view in case.alive if (place := _passed(view)) is not None}
    if not passed:
        return None
    through = [view for view in case.alive if view.rank in passed]
    lines = {place.at for view in through for place in _places(view)}
    often = _AS_OFTEN * min(map(_switches, through))
    for view in case.alive:
        alike = _sleeps(view) and view.place.at in lines and _switches(view) >= max(1.0, often)
        if view.rank not in passed and view.motion not in ("moved", "looping") and not alike:
            return None
    return through, passed[through[0].rank]


def _passed(view: RankView) -> Place | None:
    """The collective of all ranks that a sample found it in, and that it has left since."""
    if not view.got_on or view.place.communicates:
        return None
    return next((place for place in _places(view)[:-1] if _is_of_all(place)), None)


def _is_of_all(place: Place) -> bool:
    return place.kind == "collective" and (place.group == "world" or place.op == GRADIENTS)


def _places(view: RankView) -> list[Place]:
    return [find_place(thread.frames) for thread in own_threads(view) if thread.frames]


def _sleeps(view: RankView) -> bool:
    """Whether it ran between the samples, and now sleeps for a time in code of its own."""
    awoke = view.motion == "stirred" and view.place.kind == "code" and not view.stopped
    threads = own_threads(view)
    return awoke and bool(threads) and threads[-1].syscall in SLEEPS


def _switches(view: RankView) -> float:
    """Context switches of its thread between the samples; 0 where the system does not count them."""
    threads = own_threads(view)
    if len(threads) < 2 or min(threads[0].switches, threads[-1].switches) < 0:
        return 0.0
    return float(threads[-1].switches - threads[0].switches)
