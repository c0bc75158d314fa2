"""Clocks of nodes aligned by the operations themselves.

Whoever leaves an all_reduce leaves after the last member has entered: for members on clocks a and
b, with o what is to be added to a clock's reading, ``entered_a + o_a <= left_b + o_b``. Every
instance gives such inequalities; together they are a system of difference constraints (Bellman
1958; Cormen et al., "Difference constraints and shortest paths"): shortest paths from the reference
give the greatest possible offsets, those to it the smallest. Both are solutions, so their mean is
one too, on which no operation ends before it can; half their difference is the bound.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec import Struct

from ..text.ranges import format_ranks
from .instances import orders
from .model import Correction, OperationInstance, RankTrace, nanoseconds

# Clocks in one instance up to which every pair is compared; above, each with the first and its
# neighbour.
_EVERY_PAIR = 8
_FEWEST = 16  # inequalities that a piece of a drifting history must have
_LINES = 12  # clocks up to which each gets its own
_PIECES = 6  # halvings of a drifting history

Edges = dict[tuple[str, str], int]


class Bound(Struct, frozen=True):
    """``entered (clock a) + o_a <= left (clock b) + o_b``, in nanoseconds."""

    a: str
    b: str
    entered: int
    left: int


def bounds_of(instances: Iterable[OperationInstance], ranks: Sequence[RankTrace]) -> list[Bound]:
    """The inequalities between different clocks that the instances give."""
    found: list[Bound] = []
    for instance in instances:
        first, second = orders(instance, ranks)
        entered: dict[str, int] = {}
        left: dict[str, int] = {}
        for i, j in first:
            clock, at = ranks[i].clock, nanoseconds(ranks[i].ops.operations[j].entered_s)
            entered[clock] = max(at, entered.get(clock, at))
        for i, j in second:
            op = ranks[i].ops.operations[j]
            if op.state == "done" and op.left_s:
                clock, at = ranks[i].clock, nanoseconds(op.left_s)
                left[clock] = min(at, left.get(clock, at))
        found += [Bound(a, b, entered[a], left[b]) for a, b in _pairs(list(entered), list(left))]
    return found


def _pairs(entered: list[str], left: list[str]) -> list[tuple[str, str]]:
    if max(len(entered), len(left)) <= _EVERY_PAIR:
        return [(a, b) for a in entered for b in left if a != b]
    pairs = {(entered[0], b) for b in left} | {(a, left[0]) for a in entered}
    pairs |= set(pairwise(entered)) | set(pairwise(reversed(entered)))
    known = set(left)
    return [(a, b) for a, b in pairs if a != b and b in known]


def align(ranks: Sequence[RankTrace], instances: Iterable[OperationInstance]) -> list[Correction]:
    """What to add to each clock, the reference first: that of the lowest rank.

    Clocks that nothing links to it are aligned
    among themselves, by a reference of their own, and say so.
    """
    members: dict[str, list[int]] = {}
    for trace in ranks:
        members.setdefault(trace.clock, []).append(trace.rank)
    if len(members) == 1:
        clock = next(iter(members))
        return [Correction(clock, members[clock], clock, 0, bound_ns=0)]
    return solve(members, bounds_of(instances, ranks))


def solve(members: dict[str, list[int]], bounds: list[Bound]) -> list[Correction]:
    """Corrections for the clocks in `members` (clock -> its ranks), in their order; pure."""
    edges = _tightest(bounds)
    left = list(members)
    done: dict[str, Correction] = {}
    while left:
        reference = left[0]
        found = _around(reference, edges, bounds, members)
        done |= found
        left = [clock for clock in left if clock not in found]
    first = next(iter(members))
    for clock, correction in done.items():
        if correction.reference != first:
            correction.bound_ns = None
            correction.why = _why(clock, first, edges, correction)
    return [done[clock] for clock in members]


def _why(clock: str, first: str, edges: Edges, correction: Correction) -> str:
    reach, backward = _paths(first, edges, True), _paths(first, edges, False)
    if reach is None or backward is None:
        return f"the operations contradict one another, perhaps because a clock was set during the run: aligned only by its own readings, with {correction.reference}"
    if clock in reach or clock in backward:
        return f"bounded on one side only: no operation went both ways between it and {first}"
    return f"no finished operation links it with {first}"


def _tightest(bounds: Iterable[Bound]) -> Edges:
    """(a, b) -> the smallest known limit of ``o_a - o_b``."""
    edges: Edges = {}
    for bound in bounds:
        key, limit = (bound.a, bound.b), bound.left - bound.entered
        if limit < edges.get(key, limit + 1):
            edges[key] = limit
    return edges


def _paths(reference: str, edges: Edges, forward: bool) -> dict[str, int] | None:
    """Shortest paths from the reference (or to it) over the limits; None where a cycle is negative:
    a contradiction.
    """
    reach = {reference: 0}
    steps = [((b, a) if forward else (a, b), limit) for (a, b), limit in edges.items()]
    for _ in range(len({c for pair in edges for c in pair}) + 1):
        changed = False
        for (one, other), limit in steps:
            if one in reach and reach[one] + limit < reach.get(other, reach[one] + limit + 1):
                reach[other] = reach[one] + limit
                changed = True
        if not changed:
            return reach
    return None


def _fit(reference: str, edges: Edges) -> dict[str, tuple[int, int]] | None:
    """clock -> (offset, bound) for all that are bounded on both sides; None on a contradiction."""
    above, below = _paths(reference, edges, True), _paths(reference, edges, False)
    if above is None or below is None:
        return None
    return {
        c: ((above[c] - below[c]) // 2, -(-(above[c] + below[c]) // 2)) for c in above if c in below
    }


def _around(
    reference: str, edges: Edges, bounds: list[Bound], members: dict[str, list[int]]
) -> dict[str, Correction]:
    fit = _fit(reference, edges)
    if fit is not None:
        return {
            c: Correction(c, members[c], reference, offset, bound_ns=bound)
            for c, (offset, bound) in fit.items()
        }
    return _drifting(reference, bounds, members) or {
        reference: Correction(reference, members[reference], reference, 0, bound_ns=0)
    }


# --------------------------------------------------------------------------- in words


def clock_words(correction: Correction) -> str:
    """One line on how a clock was aligned."""
    word = "rank" if len(correction.ranks) == 1 else "ranks"
    ranks = f"clock {correction.clock or 'of all ranks'} ({word} {format_ranks(correction.ranks)})"
    if correction.clock == correction.reference and not correction.why:
        return f"{ranks}: the reference"
    if correction.bound_ns is None:
        return f"{ranks}: not aligned: {correction.why}"
    drift = f", drift {correction.drift_ppm:+.1f} ppm" if correction.knots else ""
    return f"{ranks}: {correction.offset_ns / 1e9:+.6f} s, within {correction.bound_ns / 1e6:.3f} ms{drift}"


def clock_lines(clocks: Sequence[Correction]) -> list[str]:
    """A line for each clock; of many, the reference, those that could not be aligned, and the
    widest bound of the others.
    """
    if len(clocks) <= _LINES:
        return [clock_words(c) for c in clocks]
    lost = [c for c in clocks if c.bound_ns is None]
    bounds = [c.bound_ns for c in clocks[1:] if c.bound_ns is not None]
    lines = [clock_words(clocks[0])] + [clock_words(c) for c in lost[:_LINES]]
    if len(lost) > _LINES:
        lines.append(f"{len(lost) - _LINES} more clocks are not aligned")
    if bounds:
        lines.append(
            f"{len(bounds)} more clocks are aligned, all within {max(bounds) / 1e6:.3f} ms"
        )
    return lines


# --------------------------------------------------------------------------- clocks that drift


def _drifting(
    reference: str, bounds: list[Bound], members: dict[str, list[int]]
) -> dict[str, Correction]:
    """No constant offset fits: halve the history until each piece has one, and join the pieces by
    straight lines.
    """
    rough = _rough(reference, bounds)
    linked = sorted(
        (b for b in bounds if b.a in rough and b.b in rough), key=lambda b: b.entered + rough[b.a]
    )
    pieces = list(_halve(reference, linked, _PIECES))
    found: dict[str, Correction] = {}
    for clock in members:
        knots: list[tuple[int, int]] = []
        widest = 0
        for middle, fit in pieces:
            if clock in fit:
                offset, bound = fit[clock]
                knots.append((middle - offset, offset))
                widest = max(widest, bound)
        if knots:
            found[clock] = _joined(clock, members[clock], reference, sorted(knots), widest)
    return found


def _joined(
    clock: str, ranks: list[int], reference: str, knots: list[tuple[int, int]], bound: int
) -> Correction:
    middle = knots[len(knots) // 2][1]
    span = knots[-1][0] - knots[0][0]
    drift = (knots[-1][1] - knots[0][1]) / span * 1e6 if span else 0.0
    return Correction(
        clock,
        ranks,
        reference,
        middle,
        bound_ns=bound,
        drift_ppm=round(drift, 3),
        why="",
        knots=knots,
    )


def _halve(
    reference: str, bounds: list[Bound], depth: int
) -> Iterable[tuple[int, dict[str, tuple[int, int]]]]:
    """(time of the reference in the middle of a piece, its fit), in order."""
    fit = _fit(reference, _tightest(bounds))
    if fit is not None:
        mine = [b.entered for b in bounds if b.a == reference] + [
            b.left for b in bounds if b.b == reference
        ]
        if mine:
            yield statistics.median_low(mine), fit
        return
    if depth and len(bounds) >= 2 * _FEWEST:
        yield from _halve(reference, bounds[: len(bounds) // 2], depth - 1)
        yield from _halve(reference, bounds[len(bounds) // 2 :], depth - 1)


def _rough(reference: str, bounds: list[Bound]) -> dict[str, int]:
    """clock -> an offset good enough to sort by: medians of single inequalities along a tree."""
    limits: dict[tuple[str, str], list[int]] = {}
    for b in bounds:
        limits.setdefault((b.a, b.b), []).append(b.left - b.entered)
    rough, todo = {reference: 0}, [reference]
    while todo:
        here = todo.pop(0)
        for (one, other), values in limits.items():
            if other == here and one not in rough:
                rough[one] = rough[here] + int(statistics.median(values))
                todo.append(one)
            elif one == here and other not in rough:
                rough[other] = rough[here] - int(statistics.median(values))
                todo.append(other)
    return rough
