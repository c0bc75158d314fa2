"""Pass: native stacks of processes of which no rank is known: who is not where the others wait.

How many processes each stack stands for, and whether all are there, is not known either. So only two
things are concluded: that a process which is elsewhere has not come to the call that others wait in,
and that MPI_Finalize waits for those which have not called it.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from ..model.diagnosis import Kind, Status
from ..model.frame import Frame
from ..stacks import aborts, native_program, no_ranks
from ..stacks.rank_thread import rank_thread
from . import own_ends
from .case import Case, frame_of, op_of, where_held
from .confidence import Ground, Limit, sure
from .draft import Draft
from .findings import Clue, Finding, Standing, UnnamedAt, UnnamedElsewhere
from .position import group_by_operation, is_ahead
from .view import RankView

_FRAMES = 4  # of a stack, in evidence
_TOGETHER = ("collective", "start", "end")  # kinds of calls that wait for all members of a group
_OF_TWO = "_two_procs"  # in the names of Open MPI's functions for groups of two


def run(case: Case, draft: Draft) -> None:
    """The only pass of such a capture."""
    ended = None if case.capture.rankless else own_ends.ended_itself(case)
    found = None if case.capture.rankless else ended or _find(case)
    draft.findings = [found] if found is not None else []
    stands: Status = "failed" if ended is not None else "hang"
    draft.status = stands if found is not None else "unknown"


def _find(case: Case) -> Finding | None:
    leaving = [v for v in case.waiting if v.place.kind == "end"]
    waiting = [v for v in case.waiting if v.place.kind != "end"]
    outside = [v for v in case.alive if _is_elsewhere(v)]
    # A send or receive may wait for a third process: it says nothing of this one.
    together = [v for v in case.waiting if v.place.kind in _TOGETHER]
    if outside:
        return _outside(outside, together, case)
    alike = len(group_by_operation(waiting)) == 1
    return _finding(case, waiting, leaving) if leaving and waiting and alike else None


def _outside(
    outside: Sequence[RankView], waiting: Sequence[RankView], case: Case
) -> Finding | None:
    """None where several places, or more processes than wait, leave open which of them matters."""
    one_place = len({view.place.at for view in outside}) == 1
    few = bool(waiting) and _number(case, outside) <= _number(case, waiting)
    if not (one_place and few) or is_ahead(outside[0], waiting):
        return None
    return _finding(case, outside, waiting)


def _number(case: Case, views: Sequence[RankView]) -> int:
    """Of how many processes these stacks are."""
    sizes = case.capture.sizes
    return sum(sizes[view.rank] if view.rank < len(sizes) else 1 for view in views)


def _is_elsewhere(view: RankView) -> bool:
    """Whether its stack shows it in the program's own code, in no call of several ranks."""
    return bool(view.path) and not view.place.communicates and not view.got_on


def _finding(case: Case, late: Sequence[RankView], waiting: Sequence[RankView]) -> Finding:
    groups = group_by_operation(waiting)
    in_call = op_of(late) if late[0].place.communicates else None
    kind: Kind = "end_stall" if in_call is not None else "not_entered"
    doubts = [Limit.ONE_SAMPLE] if late[0].motion == "unknown" else []
    others = _names(case, waiting)
    at = None if in_call is not None else frame_of(late[0])
    return Finding(
        kind=kind,
        ranks=[],
        story=UnnamedElsewhere(_names(case, late), in_call, others, op_of(groups[0]), at),
        confidence=sure(Ground.UNNAMED, *doubts),
        where=where_held(case, groups[0], late[0]),
        frame=at,
        clues=[_at(case, some) for some in (late, *groups)],
    )


def _at(case: Case, views: Sequence[RankView]) -> Clue:
    view = views[0]
    frames = tuple(reversed(view.path[-_FRAMES:]))
    if len(frames) < 2 and view.thread is not None:  # where the call was made from is not known
        frames = tuple(view.thread.frames[:_FRAMES])
    return Clue("stack", (), UnnamedAt(_names(case, views), frames))


def _names(case: Case, views: Sequence[RankView]) -> tuple[str, ...]:
    """What these processes are called."""
    return tuple(case.capture.names[view.rank] for view in views)


def standing(case: Case) -> tuple[Standing, ...]:
    """Where all of them are, those in one place together, for a job in which none stands out."""
    if case.capture.rankless:
        return tuple(_without_rank(case, view) for view in case.alive)
    found: list[Standing] = []
    for group in _at_one_place(case):
        place, view = group[0].place, group[0]
        names = _names(case, group)
        if place.communicates:
            collective = place.kind in _TOGETHER
            pair = collective and all(map(_is_of_two, group))
            requests = all(map(_awaits_requests, group))
            op = op_of(group)
            found.append(Standing(names, op, collective=collective, pair=pair, requests=requests))
        else:
            at, locked = frame_of(view), _is_locked(view)
            passed = is_ahead(view, case.waiting)
            standing = Standing(names, frame=at, locked=locked, within=_within(view))
            found.append(structs.replace(standing, passed=passed, inside=_waits_inside(view)))
    found += [_ended(case, view) for view in case.gone]
    return tuple(found)


def _is_of_two(view: RankView) -> bool:
    threads = view.capture.samples[-1].threads
    return any(frame.name.endswith(_OF_TWO) for thread in threads for frame in thread.frames)


def _is_locked(view: RankView) -> bool:
    threads = view.capture.samples[-1].threads
    return any(native_program.own_lock(thread.frames) is not None for thread in threads[:1])


def _awaits_requests(view: RankView) -> bool:
    threads = view.capture.samples[-1].threads
    return any(native_program.awaits_requests(thread.frames) for thread in threads)


def _waits_inside(view: RankView) -> bool:
    threads = view.capture.samples[-1].threads
    return any(native_program.waits_inside(thread.frames) for thread in threads[:1])


def _at_one_place(case: Case) -> list[list[RankView]]:
    """Those in one operation together; those of which it does not show, by what is known of them."""
    found: list[list[RankView]] = []
    for group in group_by_operation(case.alive):
        by_part: dict[str, list[RankView]] = {}
        for view in group:
            part = "" if view.place.communicates else str(_within(view) or "")
            by_part.setdefault(part, []).append(view)
        found += by_part.values()
    return found


def _within(view: RankView) -> Frame | None:
    """The innermost function that is known of a stack whose inner frames were left out."""
    threads = view.capture.samples[-1].threads
    frames = threads[0].frames if threads else []
    if view.path or len(frames) < 2 or frames[0].name != "??":
        return None
    return next((frame for frame in frames if frame.name != "??"), None)


def _without_rank(case: Case, view: RankView) -> Standing:
    """A process that starts ranks, gives them work or waits for them."""
    threads = view.capture.samples[-1].threads
    thread = next((t for t in threads if t.name == "MainThread"), threads[0] if threads else None)
    awaits = no_ranks.awaited(thread.frames) if thread is not None else ""
    return Standing(_names(case, [view]), frame=frame_of(view), rankless=True, awaits=awaits)


def _ended(case: Case, view: RankView) -> Standing:
    """A process that a signal has ended, with where that came."""
    threads = view.capture.samples[-1].threads
    thread, place = rank_thread(threads)
    frames = thread.frames if thread is not None else []
    caught = any(frame.name == aborts.SIGNAL_HANDLER for frame in frames)
    frame = aborts.crashed_in(frames) if caught else place.frame  # not where its handler stands
    signal = -(view.capture.exit_code or 0)
    aborted = not signal
    return Standing(_names(case, [view]), frame=frame, end=signal, aborted=aborted)
