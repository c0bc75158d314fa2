"""Why the waits that logs show name no rank: all in one operation, one alone, or each in another."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from ...model.log_facts import Counted, KnownError, PythonError, TimedOut, Told
from ..findings import Op
from ..findings.log_remaining import LogRemaining, Undecided
from .counter_leads import awaited, in_gloo, left_behind
from .counters import told_by_themselves
from .library_waits import of_libraries
from .scene import Scene, op_of, ranks_named

WATCHDOG = "watchdog_abort"  # a rule
_PARTED = ("_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE")
_SHOWN = 3  # ranks that do not say what the others do
_NEAR = 16  # numbers of one counter
_FEWEST = 2  # ranks of which one may be behind


def of_waits(scene: Scene) -> LogRemaining | None:
    """Ranks that waited until a limit."""
    ahead = left_behind(scene)
    if ahead is not None:
        return ahead
    waits = scene.of(TimedOut)
    ranks = tuple(ranks_named([*waits, *_in_the_same(scene, waits)]))
    if len(ranks) > 1:
        named = {(w.op, w.seq) for w in waits if w.op}  # in some lines the name is cut
        one = named | {("", w.seq) for w in waits if w.seq not in {seq for _, seq in named}}
        reason = Undecided.EQUAL_COUNTERS if len(one) == 1 else Undecided.WAITERS_ONLY
        if len(one) > 1:
            furthest = _furthest_behind(waits)
            return LogRemaining(
                reason,
                ranks,
                waited=_in_which(waits, ranks),
                furthest=furthest.rank if furthest is not None else -1,
                furthest_op=op_of([furthest]) if furthest is not None else None,
                unheard=_of_its_size(waits, ranks),
            )
        found = LogRemaining(reason, ranks, op_of(waits), unheard=_unheard(waits, ranks))
        return structs.replace(found, sizes=_sizes(waits), awaited=_asked_for(scene, ranks))
    if waits:
        at = structs.replace(op_of(waits), frame=waits[0].frame)
        heard = {*scene.logs.heard, *ranks_named(scene.facts)}  # an abort, say, is a sign of it
        others = tuple(rank for rank in scene.everyone if rank not in heard)
        unnamed = any(error.rank < 0 for error in scene.of(PythonError))  # which may be theirs
        few = scene.whole and 0 < len(others) <= _SHOWN and not unnamed
        ended = tuple(rank for rank in _ended_by_watchdogs(scene) if rank not in ranks)
        alone = LogRemaining(
            Undecided.ONE_WAITER, ranks, at, unheard=others if few else (), aborted=ended
        )
        return in_gloo(scene, structs.replace(alone, awaited=_asked_for(scene, ranks)))
    told = [f for f in scene.of(Told) if f.by == -1]
    counted = [f for f in scene.of(Counted) if f.at_work >= 0]
    ranks = tuple(ranks_named([*told, *counted]))
    if ranks:
        return _by_number(scene, ranks, counted)
    by = sorted({f.by for f in scene.of(Told) if f.by >= 0})
    if len(by) == 1:  # in the words of those that it told
        return LogRemaining(Undecided.ONE_WAITER, tuple(by), Op("an operation"))
    return of_libraries(scene)


def _ended_by_watchdogs(scene: Scene) -> list[int]:
    """The ranks that say so: they had waited as well, or met an error of NCCL's."""
    return ranks_named(f for f in scene.of(KnownError) if f.rule == WATCHDOG)


def _by_number(scene: Scene, ranks: tuple[int, ...], counted: Sequence[Counted]) -> LogRemaining:
    """Of waits whose operation is known by its number alone, if at all."""
    numbers = {f.rank: f.at_work for f in counted}
    numbers |= {f.rank: f.seq for f in told_by_themselves(scene) if f.rank not in numbers}
    distinct = set(numbers.values())
    op = Op("operation", distinct.pop()) if len(distinct) == 1 else Op("an operation")
    if len(ranks) == 1:
        return in_gloo(scene, LogRemaining(Undecided.ONE_WAITER, ranks, op))
    if not distinct:
        return LogRemaining(Undecided.EQUAL_COUNTERS, ranks, op)
    waited = tuple(((rank,), Op("operation", number)) for rank, number in numbers.items())
    few = len(waited) == len(ranks) <= _SHOWN
    return LogRemaining(Undecided.WAITERS_ONLY, ranks, waited=waited if few else ())


def _asked_for(scene: Scene, waiters: Sequence[int]) -> int:
    """The rank that a line names as waited for, where it is none of these."""
    named = awaited(scene)
    return named if named not in waiters else -1


def _sizes(waits: Sequence[TimedOut]) -> tuple[tuple[tuple[int, ...], int], ...]:
    """Who waited with how many elements, where they do not agree; of two or three sizes."""
    found: dict[int, list[TimedOut]] = {}
    for wait in waits:
        if wait.numel_in >= 0:
            found.setdefault(wait.numel_in, []).append(wait)
    if not 1 < len(found) <= _SHOWN:
        return ()
    return tuple((tuple(ranks_named(alike)), size) for size, alike in found.items())


def _in_which(
    waits: Sequence[TimedOut], ranks: Sequence[int]
) -> tuple[tuple[tuple[int, ...], Op], ...]:
    """Which of these ranks waited in which operation, where they are few and each has one."""
    found: dict[tuple[str, int], list[TimedOut]] = {}
    for wait in waits:
        found.setdefault((wait.op, wait.seq), []).append(wait)
    met = [rank for alike in found.values() for rank in ranks_named(alike)]
    if len(found) > _SHOWN or sorted(met) != sorted(ranks) or ("", -1) in found:
        return ()
    return tuple((tuple(ranks_named(alike)), op_of(alike)) for alike in found.values())


def _furthest_behind(waits: Sequence[TimedOut]) -> TimedOut | None:
    """The wait of the one rank in the lowest number, where all others are a little further: numbers
    far apart are of several groups, and say nothing of one another.
    """
    counted = [w for w in waits if w.rank >= 0 and w.seq >= 0 and not w.group]
    middle = sorted(w.seq for w in counted)[len(counted) // 2] if counted else -1
    near = [w for w in counted if abs(w.seq - middle) <= _NEAR]
    first: dict[int, TimedOut] = {}
    for wait in sorted(near, key=lambda w: w.seq, reverse=True):
        first[wait.rank] = wait
    if len(first) < _FEWEST or len(first) < len(ranks_named(waits)):
        return None
    lowest = min(first.values(), key=lambda w: w.seq)
    alone = sum(w.seq == lowest.seq for w in first.values()) == 1
    return lowest if alone else None


def _unheard(waits: Sequence[TimedOut], ranks: Sequence[int]) -> tuple[int, ...]:
    """The few ranks below the highest of those that waited in one operation, of all ranks as far as
    it shows, which do not say it: a lead, no more.
    """
    others = tuple(sorted(set(range(max(ranks))) - set(ranks)))
    few = len(others) <= _SHOWN and len(others) < len(ranks)
    whole = {w.group for w in waits} <= {"", "0", "0(default_pg)", "default_pg"}
    sizes = {w.group_size for w in waits if w.group_size > 0}
    return others if few and whole and not sizes else ()


def _of_its_size(waits: Sequence[TimedOut], ranks: Sequence[int]) -> tuple[int, ...]:
    """The few ranks that are missing to as many as an operation has members, by its sizes: each
    member brings one part of what all get together.
    """
    sizes = {w.numel_out // w.numel_in for w in waits if _gathers(w.op, w.numel_in, w.numel_out)}
    sizes |= {w.numel_in // w.numel_out for w in waits if _gathers(w.op, w.numel_out, w.numel_in)}
    size = sizes.pop() if len(sizes) == 1 else 0
    whole = {w.group for w in waits} <= {"", "0", "0(default_pg)", "default_pg"}
    if not whole or size <= max(ranks) or size - len(set(ranks)) > _SHOWN:
        return ()
    return tuple(sorted(set(range(size)) - set(ranks)))


def _gathers(op: str, part: int, whole: int) -> bool:
    return op in _PARTED and 0 < part < whole and whole % part == 0


def _in_the_same(scene: Scene, waits: Sequence[TimedOut]) -> list[Counted]:
    """Who waited in the operation of these, by its counters; its own line may be missing."""
    same = {(wait.seq, wait.group) for wait in waits if wait.seq >= 0}
    whole = {seq for seq, group in same if not group}  # the line of a wait has no group
    return [
        f
        for f in scene.of(Counted)
        if f.rank >= 0
        and ((f.at_work, f.group) in same or (f.at_work in whole and f.group.startswith("0")))
    ]
