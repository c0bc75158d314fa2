"""Pass: what the findings come to: hang, slow, healthy or unknown, and why the last two."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from msgspec import Struct

from ..model.diagnosis import Status, Wait
from ..stacks.inner_wait import InnerWait, inner_wait
from ..stacks.place_search import HANDLE, STORE
from ..text import alike
from . import (
    called_alone,
    driven,
    operations,
    own_loops,
    ras_counts,
    ras_culprits,
    sleepers,
    unnamed,
)
from .called_within import Within, few_within
from .case import Case, op_of, ranks_of, sides_of
from .compiled_calls import all_in_jax, all_in_mpi
from .deadends import in_smaller_group
from .draft import Draft
from .faults import left_well, unstarted
from .findings import Finding, Op, Standing
from .position import group_by_operation
from .unmatched import is_half
from .view import RankView
from .waiting import of_chosen_groups

_GOING_ON = ("moved", "looping")
_AT_WORK = ("running", "looping", "moved", "stirred")
_BLOCKING_SENDS = frozenset({"send", "ssend", "rsend", "mpi_send", "mpi_ssend", "mpi_rsend"})


class Reason(Enum):
    """Why a job is healthy, or why nothing could be said."""

    ALL_MOVED = auto()
    OTHERS_MOVED = auto()  # of those that have ended with exit code 0
    MOST_MOVED = auto()
    ALL_STIRRED = auto()
    SLEEP_BY_TURNS = auto()  # all sleep at the lines of ranks that passed a collective of all
    NOT_CAPTURED = auto()
    RAS_NO_DATA = auto()  # of a process, and nothing shows that others wait for it
    RAS_GAP = auto()
    RAS_MOVED = auto()
    RAS_ERROR = auto()
    RAS_STATES = auto()
    RAS_TIMEOUTS = auto()
    RAS_EQUAL = auto()
    SOME_NOT_SEEN = auto()
    NO_STACKS = auto()
    SOME_NOT_CAPTURED = auto()
    SOME_NOT_STARTED = auto()
    NONE_WAITS = auto()
    OWN_LOOP = auto()  # all are in one loop of the program's own, which asks and sleeps
    SOME_WAIT = auto()
    ALL_WITHOUT_WORK = auto()
    ONE_RANK = auto()
    TWO_SIDES = auto()
    ALL_RECEIVE = auto()
    ALL_AT_STORE = auto()  # for keys that are not known
    ALL_SEND = auto()  # blocking, to ranks that are not known
    ALL_EXCHANGE = auto()  # in transfers whose peers are not known
    CHOSEN_GROUPS = auto()  # all at one line, which takes its group out of several
    ONE_SAMPLE = auto()
    STILL_APART = auto()  # all, at several places, in nothing that is known as a wait
    NOTHING_STANDS_OUT = auto()
    OVER = auto()
    PART = auto()  # all wait in one operation, and there may be more ranks
    UNNAMED = auto()  # stacks of processes of which no rank is known


_ITERATES = ("__next__", "__anext__", "__iter__")  # of an iterator of the program's or a library's


class Remaining(Struct, frozen=True):
    """A reason with its facts."""

    reason: Reason
    ranks: tuple[int, ...] = ()
    others: tuple[int, ...] = ()
    op: Op | None = None
    whys: tuple[str, ...] = ()
    number: int = 0
    inner: InnerWait | None = None  # of ONE_SAMPLE: all wait for this inside of their own process
    fed: bool = False  # they wait for a queue, for the next item of an iterator
    sides: tuple[tuple[tuple[int, ...], Op], ...] = ()  # of TWO_SIDES: who is in which operation
    # Of TWO_SIDES: who comes there under a condition on the rank
    under: tuple[tuple[int, ...], str] = ((), "")
    halves: tuple[int, ...] = ()  # of TWO_SIDES: who is in a transfer with a peer that is not known
    smaller: tuple[int, ...] = ()  # of TWO_SIDES: who is in a call whose line names a smaller group
    within: Within | None = None  # of TWO_SIDES: who called from inside the others' call
    loop: own_loops.OwnLoop | None = None  # of OWN_LOOP
    lost: Finding | None = None  # of RAS_NO_DATA
    places: tuple[Standing, ...] = ()  # of UNNAMED
    uncounted: bool = False  # black boxes do not count the calls that they wait in, or are there
    nameless: bool = False  # of ONE_RANK: which rank it is does not show
    keys: tuple[str, ...] = ()  # of ALL_AT_STORE: those that they wait for, as far as they show
    called: str = ""  # of ONE_SAMPLE: the only process, where which rank it is does not show


def run(case: Case, draft: Draft) -> None:
    """Settle the status where no pass has."""
    if draft.status is None:
        draft.status = _status(case, draft.findings)


def _status(case: Case, findings: list[Finding]) -> Status:
    if not case.views and not findings:
        return "unknown"
    if why_healthy(case) is not None and not any(c.kind in ("dead", "stopped") for c in findings):
        return "healthy"
    if not findings:
        return "unknown"
    return "slow" if all(c.kind == "slow" for c in findings) else "hang"


def why_healthy(case: Case) -> Remaining | None:
    """What shows that the stacks of all ranks get on; None where they are not shown to."""
    alive = case.alive
    if case.absent or case.silent or not alive or driven.idle(alive):
        return None
    if case.gone:
        left = Remaining(Reason.OTHERS_MOVED, ranks_of(case.gone), number=len(alive))
        return left if left_well(case) else None
    moved = [v for v in alive if v.motion in _GOING_ON and not own_loops.polls(v)]
    if len(moved) == len(alive):
        return Remaining(Reason.ALL_MOVED, number=len(alive))
    round_trip = None if case.unread else sleepers.went_on(case)
    if round_trip is not None:
        through, place = round_trip
        op = Op(place.op, frame=place.frame, caller=place.caller)
        return Remaining(Reason.SLEEP_BY_TURNS, ranks_of(through), op=op, number=len(alive))
    if any(_in_doubt(v) for v in alive):
        return None
    if moved and len(moved) * 2 >= len(alive):
        return Remaining(Reason.MOST_MOVED, ranks_of(moved), number=len(alive))
    stirred = sum(v.motion == "stirred" and v.place.communicates for v in alive)
    return Remaining(Reason.ALL_STIRRED) if stirred + len(moved) == len(alive) else None


def _in_doubt(view: RankView) -> bool:
    """Whether a rank that did not move, or was in set-up or teardown, may be stuck."""
    if view.stopped or view.stack_error or view.place.kind in ("start", "end"):
        return True
    if view.motion in ("still", "unknown") or own_loops.polls(view):
        return True
    return view.motion == "stirred" and not view.place.communicates


def why_unknown(case: Case, waits: Sequence[Wait] = ()) -> Remaining:
    """The first reason that applies, by how much it explains; `waits`: those that the records show."""
    if not case.views:
        return _nothing_captured(case)
    if case.capture.names:
        return Remaining(Reason.UNNAMED, places=unnamed.standing(case))
    if case.unseen and operations.all_go_on(case):
        whys = alike.in_words((s.node, s.why) for s in case.capture.silent if s.node)
        return Remaining(Reason.SOME_NOT_SEEN, tuple(case.unseen), whys=tuple(whys))
    blind = [v for v in case.alive if v.stack_error]
    if blind:
        return Remaining(Reason.NO_STACKS, ranks_of(blind), whys=(blind[0].stack_error,))
    found = _by_motion(case)
    waiting = {rank for wait in waits for rank in wait.ranks}
    if found.reason is Reason.NONE_WAITS and waiting:
        others = tuple(rank for rank in found.ranks if rank not in waiting)
        return Remaining(Reason.SOME_WAIT, tuple(sorted(waiting)), others)
    return found


def _nothing_captured(case: Case) -> Remaining:
    counted = ras_counts.read(case)
    if counted is not None:
        return _by_ras(counted)
    lost = ras_culprits.no_data(case)
    if lost is not None:
        return Remaining(Reason.RAS_NO_DATA, lost=lost)
    whys = alike.in_words((s.node, s.why) for s in case.capture.silent)
    return Remaining(Reason.NOT_CAPTURED, whys=tuple(whys))


def _by_ras(counted: ras_counts.Counted) -> Remaining:
    """What RAS alone shows, where that decides nothing."""
    if counted.error:
        return Remaining(Reason.RAS_ERROR, whys=(counted.error,))
    if counted.behind or counted.elsewhere:
        reason = Reason.RAS_MOVED if counted.moved else Reason.RAS_GAP
        return Remaining(reason, counted.behind, whys=counted.elsewhere)
    if counted.states:
        whys = tuple(f"rank {rank} {state}" for rank, state in counted.states)
        return Remaining(Reason.RAS_STATES, whys=whys)
    if counted.timeouts:
        return Remaining(Reason.RAS_TIMEOUTS, number=counted.timeouts)
    return Remaining(Reason.RAS_EQUAL, number=counted.size)


def _by_motion(case: Case) -> Remaining:
    groups = group_by_operation(case.waiting)
    if groups:
        return _by_waits(case, groups)
    without_work = driven.idle(case.alive)
    if without_work and len(without_work) == len(case.alive):
        return Remaining(Reason.ALL_WITHOUT_WORK, ranks_of(without_work))
    not_started = unstarted(case)
    if not_started:
        return Remaining(Reason.SOME_NOT_STARTED, tuple(not_started), ranks_of(case.alive))
    loop = own_loops.all_in_one(case)
    if loop is not None:
        return Remaining(Reason.OWN_LOOP, loop.ranks, loop=loop)
    at_work = [v for v in case.alive if v.motion in _AT_WORK]
    if at_work:
        return Remaining(Reason.NONE_WAITS, ranks_of(at_work), tuple(case.absent))
    if case.capture.over:
        return Remaining(Reason.OVER)
    if any(v.motion == "unknown" for v in case.alive):
        return _one_sample(case)
    sides = sides_of(case.alive)
    if sides and all(v.motion == "still" and v.place.frame is not None for v in case.alive):
        return Remaining(Reason.STILL_APART, sides=sides)
    return Remaining(Reason.NOTHING_STANDS_OUT)


def _one_sample(case: Case) -> Remaining:
    """With the place of all ranks, where it is one: who asked may know more of it."""
    frames = [v.place.frame for v in case.alive]
    first = frames[0]
    if first is None or any(
        f is None or (f.file, f.line) != (first.file, first.line) for f in frames
    ):
        sides = sides_of(case.alive) if all(f is not None for f in frames) else ()
        return Remaining(Reason.ONE_SAMPLE, sides=sides)
    fed = all(v.place.kind == "queue" for v in case.alive) and first.name in _ITERATES
    at = Op("", frame=first)
    inner = _inner(case.alive)
    return Remaining(
        Reason.ONE_SAMPLE,
        ranks_of(case.alive),
        op=at,
        inner=inner,
        fed=fed,
        called=called(case),
    )


def _inner(views: Sequence[RankView]) -> InnerWait | None:
    """What all wait for inside of their own processes; None where they do not, or for several things."""
    found = [inner_wait(v.thread.frames) if v.thread is not None else None for v in views]
    first = found[0]
    alike = first is not None and all(one is not None and one.what == first.what for one in found)
    return first if alike else None


def called(case: Case) -> str:
    """The only process of a text without ranks, by its number; "" of ranks."""
    if not case.capture.numbered or len(case.views) > 1:
        return ""
    pid = case.views[0].capture.pid
    return f"process {pid}" if pid else "the process"


def is_uncounted(case: Case, waiting: list[RankView]) -> bool:
    """Whether these wait in calls that black boxes do not count: JAX's, or those of an MPI whose ranks
    have boxes without operations.
    """
    without = case.capture.by_heartbeat and all_in_mpi(waiting)
    return bool(waiting) and (without or all_in_jax(waiting))


def is_boxed(case: Case) -> bool:
    """Whether a rank's black box was read."""
    ops = [view.capture.ops for view in case.views]
    return any(o is not None and o.source == "blackbox" for o in ops)


def _sends(view: RankView) -> bool:
    """Whether it is in a send that comes back once the other side takes it."""
    return view.place.kind == "p2p" and view.place.op.lower() in _BLOCKING_SENDS


def _receives_from_any(view: RankView) -> bool:
    """Whether it waits in a receive, from any rank or one that its stack does not show."""
    return view.place.kind == "p2p" and view.place.op == "recv" and view.place.peer < 0


def _sides(groups: list[list[RankView]]) -> tuple[tuple[tuple[int, ...], Op], ...]:
    """By operation; where all are in one by their lines, by their counts."""
    by_operation = sides_of([view for group in groups for view in group])
    return by_operation or tuple((ranks_of(group), op_of(group)) for group in groups)


def _in_smaller_groups(views: list[RankView]) -> tuple[int, ...]:
    """Ranks in a collective whose line names a group; () where all are."""
    collective = [v for v in views if v.place.kind == "collective" and v.place.op != HANDLE]
    found = [view.rank for view in collective if in_smaller_group(view)]
    return tuple(sorted(found)) if len(found) < len(views) else ()


def _by_waits(case: Case, groups: list[list[RankView]]) -> Remaining:
    waiting = groups[0]
    ranks, op = ranks_of(waiting), op_of(waiting)
    if case.absent:
        return Remaining(Reason.SOME_NOT_CAPTURED, ranks, tuple(case.absent), op)
    if len(case.views) == 1:
        return Remaining(Reason.ONE_RANK, ranks, op=op, nameless=case.capture.numbered)
    others = [view for group in groups[1:] for view in group]
    if all(v.place.op == STORE for v in waiting + others):
        keys = dict.fromkeys(f.key for v in waiting + others for f in v.path if f.key)
        sides = _sides(groups) if others else ()
        return Remaining(Reason.ALL_AT_STORE, ranks, op=op, sides=sides, keys=tuple(keys))
    if others and len(waiting) + len(others) == case.world_size:
        under = called_alone.under_one(waiting + others)
        return Remaining(
            Reason.TWO_SIDES,
            ranks,
            ranks_of(others),
            op,
            sides=_sides(groups),
            under=under,
            within=few_within(groups),
            smaller=_in_smaller_groups(waiting + others),
            halves=tuple(sorted(v.rank for v in waiting + others if is_half(v))),
            uncounted=case.capture.native or all_in_jax(waiting + others) or is_boxed(case),
        )
    if not others and case.capture.part:
        return Remaining(Reason.PART, ranks, op=op)
    if not others and all(map(_receives_from_any, waiting)) and len(waiting) == case.world_size:
        return Remaining(Reason.ALL_RECEIVE, ranks, op=op)
    if not others and all(map(_sends, waiting)) and len(waiting) == case.world_size:
        return Remaining(Reason.ALL_SEND, ranks, op=op)
    if not others and all(map(is_half, waiting)) and len(waiting) == case.world_size:
        return Remaining(Reason.ALL_EXCHANGE, ranks, op=op)
    if not others and of_chosen_groups(waiting):
        return Remaining(Reason.CHOSEN_GROUPS, ranks, op=op)
    return Remaining(Reason.NOTHING_STANDS_OUT)
