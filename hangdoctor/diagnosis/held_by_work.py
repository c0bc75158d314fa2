"""Pass: all ranks go on, and in all samples a few were at work while all others slept in a
collective or in a backward, which waits for gradients: the few are slow.

A healthy job, too, has ranks that wait at one moment. Where there are two samples alone, both must
show the same work, the others must hardly have used the CPU between them, and those at work several
times as much. Six samples need no such proof: a rank that is waited for half of the time is found so
in one capture of sixty.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.capture import Frame, ThreadSample
from ..stacks.place_search import GRADIENTS, find_place
from . import findings as f
from . import gil, held_by
from .case import Case, finding_on, ranks_of, stack_clue
from .confidence import Ground, sure
from .draft import Draft
from .findings import Clue, Doing, Finding
from .own_samples import cpu_share, seen_threads
from .view import RankView

_ASLEEP = 0.05  # of the time between the samples, on the CPU, at most
_TIMES_MORE = 4.0  # CPU time than any of those that wait
_AT_LEAST = 0.05  # of the time between the samples
# Where a rank that waits has gone on between the samples, its two waits may be chance.
_MOVED_TIMES_MORE = 10.0
_MOVED_AT_LEAST = 0.25
_MOVED = ("moved", "looping")
ENOUGH = 6  # samples, to name a rank by them alone
_WAITS = ("collective", "start", "end", "p2p")


def run(case: Case, draft: Draft) -> None:
    """Name them, where nothing else is wrong with the job."""
    if draft.status not in ("healthy", "unknown") or case.capture.over:
        return
    found = _find(case)
    if found is not None:
        draft.status, draft.findings = "slow", [found]


def _find(case: Case) -> Finding | None:
    waiting, working = _sides(case)
    if not working:
        return None
    in_all = samples_of(case) >= ENOUGH
    if not in_all and not _by_cpu(waiting, working):
        return None
    ground = Ground.AT_WORK_IN_ALL if in_all else Ground.ALONE_AT_WORK
    finding = finding_on(case, "slow", working, f.NeverReached(None), confidence=sure(ground))
    if in_all:
        finding.story = f.SlowBySamples(samples_of(case), seconds_of(working[0]))
        finding.frame = most_seen(working[0]) or finding.frame
    finding.doing = Doing("working")
    finding.holding = gil.behind(working[0]) if len(working) == 1 else None
    finding.waiters = f.Waiters(ranks_of(waiting), _op_of(waiting[0]))
    code = working[0].path[-1].code
    finding.clues = [stack_clue(working, code), Clue("stack", ranks_of(waiting), f.WaitsIn())]
    finding.add_clues(held_by.clues(finding.holding, working[0]))
    return finding


def may_be_chance(case: Case) -> bool:
    """Whether all samples show a few ranks at work and the others in their waits, and there are too few
    samples to conclude anything from that.
    """
    return bool(_sides(case)[1]) and 1 < samples_of(case) < ENOUGH


def _sides(case: Case) -> tuple[list[RankView], list[RankView]]:
    """Ranks that slept in their waits in all samples, and the few that were at work in all; two empty
    lists where a rank was at neither.
    """
    if case.gone or case.unseen or case.unread or len(case.alive) < 2:
        return [], []
    waiting = [view for view in case.alive if _slept_in_wait(view)]
    working = [view for view in case.alive if view not in waiting]
    if not 0 < len(working) <= len(waiting) or not all(map(worked, working)):
        return [], []
    if all(view.motion == "still" for view in waiting):
        return [], []  # the job does not go on
    return waiting, working


def _by_cpu(waiting: list[RankView], working: list[RankView]) -> bool:
    """Whether the CPU time, too, shows that those at work in one function make the others wait."""
    places = {_work_of(view) for view in working}
    if any(view.motion == "stirred" for view in working):
        return False
    if len(places) != 1 or None in places or any(_in_transfer(view) for view in waiting):
        return False  # of a pipeline, most stages wait most of the time
    least = min(cpu_share(view) for view in working)
    most = max(cpu_share(view) for view in waiting)
    times, at_least = _TIMES_MORE, _AT_LEAST
    if any(view.motion in _MOVED for view in waiting):
        times, at_least = _MOVED_TIMES_MORE, _MOVED_AT_LEAST
    return most <= _ASLEEP and least >= max(at_least, times * most)


def samples_of(case: Case) -> int:
    """How many samples have the stack of every living rank's own thread; there is one, at least."""
    return min(len(seen_threads(view)) for view in case.alive)


def seconds_of(view: RankView) -> float:
    """From the first to the last sample with the stack of the rank's own thread."""
    seen = seen_threads(view)
    return seen[-1][0].at_s - seen[0][0].at_s


def _slept_in_wait(view: RankView) -> bool:
    """Whether it was asleep in a collective, or in a backward, in all samples."""
    seen = seen_threads(view)
    if len(seen) < 2 or view.stopped:
        return False
    places = [find_place(thread.frames, blocked=True) for _, thread in seen]
    asleep = all(thread.state == "S" for _, thread in seen)
    return asleep and all(place.kind in _WAITS for place in places)


def _in_transfer(view: RankView) -> bool:
    """Whether it waited for a send or receive in a sample."""
    return any(find_place(t.frames, blocked=True).kind == "p2p" for _, t in seen_threads(view))


def _op_of(view: RankView) -> f.Op:
    """What it waits in, by its last stack."""
    place = find_place(seen_threads(view)[-1][1].frames, blocked=True)
    return f.Op(place.op, frame=place.frame, caller=place.caller)


def worked(view: RankView) -> bool:
    """Whether it was outside of any communication in all samples, or another thread of its process
    had the GIL, and ran between them.
    """
    seen = seen_threads(view)
    if len(seen) < 2 or view.stopped or view.motion in ("still", "unknown"):
        return False
    named = gil.behind(view) is not None
    return all(_is_outside(t) or (named and gil.is_anothers(s, t)) for s, t in seen)


def _is_outside(thread: ThreadSample) -> bool:
    if thread.state == "R" and find_place(thread.frames, blocked=True).op == GRADIENTS:
        return True  # it computes gradients itself
    place = find_place(thread.frames)
    return not (place.communicates or place.delegated)


def most_seen(view: RankView) -> Frame | None:
    """The line of the user's at which most samples found it; None where none was seen twice."""
    found = [find_place(thread.frames).frame for _, thread in seen_threads(view)]
    at: dict[tuple[str, str, int], list[Frame]] = {}
    for frame in filter(None, found):
        at.setdefault((frame.name, frame.file, frame.line), []).append(frame)
    most = max(at.values(), key=len, default=[])
    return most[0] if len(most) > 1 else None


def _work_of(view: RankView) -> tuple[str, str] | None:
    """The function of the user's that it was in at both samples."""
    return _same([find_place(thread.frames).frame for _, thread in seen_threads(view)])


def _same(frames: Sequence[Frame | None]) -> tuple[str, str] | None:
    called = {(frame.name.partition(".<locals>")[0], frame.file) for frame in frames if frame}
    return next(iter(called)) if len(called) == 1 and None not in frames else None
