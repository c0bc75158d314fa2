"""A rank against its own past: iterations repeat, and where one does not, the rank left its rhythm."""

from __future__ import annotations

from collections.abc import Sequence

from ...operations import STORE
from .history import History, Token

Call = tuple[Token, str]  # what was called, and the line
_LOOKED_AT = 600  # latest records


def leaves_own_rhythm(history: History) -> bool:
    """Whether the rank made other calls in its latest iteration than in those before."""
    kept = [i for i, o in enumerate(history.operations) if o.op not in STORE][-_LOOKED_AT:]
    calls = [(history.tokens[i], history.operations[i].site) for i in kept]
    iterations = [history.operations[i].iteration for i in kept]
    if iterations and min(iterations) >= 0:
        return _by_iterations(calls, iterations, history.overwritten)
    return _by_repetition(calls)


def break_of(history: History) -> tuple[int, int] | None:
    """(record at which the latest rhythm ends, record that stood in its place one period before); None without a break.

    A rhythm here is a stretch of records that repeats at one distance at least three times, and makes up most of them:
    of the same operations, else of the same ones on the same lines.
    """
    kept = [i for i, o in enumerate(history.operations) if o.op not in STORE][-_LOOKED_AT:]
    tokens = [history.tokens[i] for i in kept]
    at = _break(tokens) or _break([(history.tokens[i], history.operations[i].site) for i in kept])
    return (kept[at[0]], kept[at[1]]) if at is not None else None


def _break(calls: Sequence[object]) -> tuple[int, int] | None:
    for period in range(2, len(calls) // 3 + 1):
        repeats = [calls[i] == calls[i - period] for i in range(period, len(calls))]
        broken = next((i for i in range(len(repeats) - 1, -1, -1) if not repeats[i]), None)
        if broken is None:
            return None  # it repeats to the end
        first = repeats.index(False)
        if first >= 2 * period and 2 * (first + period) > len(calls) and len(set(calls[first : first + period])) > 1:
            return first + period, first
    return None


def _by_iterations(calls: Sequence[Call], iterations: list[int], cut: bool) -> bool:
    numbers = sorted(set(iterations))[1 if cut else 0 :]  # of the first one only a part may be left
    slices = [[c for c, n in zip(calls, iterations, strict=True) if n == number] for number in numbers]
    for i in range(1, len(slices)):
        before, now = slices[i - 1], slices[i]
        last = i == len(slices) - 1
        if now != (before[: len(now)] if last else before):
            return True
    return False


def _by_repetition(calls: Sequence[Call]) -> bool:
    """Without iteration numbers: the longest stretch that repeats at one distance ends before the records do."""
    n = len(calls)
    best = end = period = 0
    for distance in range(1, n // 2 + 1):
        run = 0
        for i in range(distance, n + 1):
            if i < n and calls[i] == calls[i - distance]:
                run += 1
                continue
            if run >= distance and run + distance > best:
                best, end, period = run + distance, i, distance
            run = 0
    # A stretch of like calls within one iteration is no rhythm: that has several kinds of calls in it.
    kinds = {c[0] for c in calls[end - period : end]} if period else set()
    return len(kinds) > 2 and end < n
