"""A rank against its own past: iterations repeat, and where one does not, the rank left its
rhythm.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ...model.operations import STORE
from .history import History, Token

Call = tuple[Token, str]  # what was called, and the line
_LOOKED_AT = 600  # latest records
_TIMES = 3  # that a call has come at equal distances, to be overdue
_FEW = 8  # calls after the wrong one, of rounds of few


def leaves_own_rhythm(history: History) -> bool:
    """Whether the rank made other calls in its latest iteration than in those before."""
    kept, calls = _calls(history)
    iterations = [history.operations[i].iteration for i in kept]
    if iterations and min(iterations) >= 0:
        return _by_iterations(calls, iterations, history.overwritten)
    return _by_repetition(calls)


def break_of(history: History) -> tuple[int, int] | None:
    """(record at which the longest rhythm ends, record that stood in its place one period before);
    None without a break.

    A rhythm here repeats at least three times and makes up most of the records: as operations, else
    as operations on their lines. A call that comes now and then beside it, as every 25 steps, breaks
    it only where it comes too early; and where it is overdue, the rank has left it out.
    """
    kept, calls = _calls(history)
    rare = _Rare(history)
    for told in ([token for token, _ in calls], calls):
        length, end, period = _longest_stretch(told)
        # What goes on for longer than a round is another part of the program, not a wrong call.
        soon = len(told) - end <= max(period, _FEW)
        breaks = end < len(told) < 2 * length and soon
        several_kinds = len(set(told[end - period : end])) > 1
        if breaks and 3 * period <= length and several_kinds:
            usual = calls[end] in calls[end - period : end]
            if usual or not rare.may_come(kept[end]):
                return kept[end], kept[end - period]
        elif 3 * period <= length and end == len(told) and (left_out := rare.overdue(period)):
            return left_out
    return None


def keeps_rhythm(history: History) -> bool:
    """Whether the records end inside a rhythm that has repeated at least three times."""
    tokens = [token for token, _ in _calls(history)[1]]
    length, end, period = _longest_stretch(tokens)
    return 0 < 3 * period <= length and end == len(tokens) and len(set(tokens[end - period :])) > 1


class _Rare:
    """Calls that come now and then beside a rhythm, by all records."""

    def __init__(self, history: History) -> None:
        self._records, calls = _calls(history, len(history.operations))
        self._places: dict[Call, list[int]] = {}
        for place, call in enumerate(calls):
            self._places.setdefault(call, []).append(place)
        self._call_at = dict(zip(self._records, calls, strict=True))

    def may_come(self, record: int) -> bool:
        """Whether the same call was made before, and comes no sooner than it ever did."""
        places = self._places[self._call_at[record]]
        now = self._records.index(record)
        before = [place for place in places if place < now]
        gaps = [later - place for place, later in pairwise(before)]
        return bool(before) and (not gaps or now - before[-1] >= min(gaps))

    def overdue(self, period: int) -> tuple[int, int] | None:
        """(record in the place of a call that came at equal distances until now, its last record);
        `period`: of the rhythm around it, in calls.
        """
        for places in self._places.values():
            gaps = {later - place for place, later in pairwise(places)}
            if len(places) < _TIMES or len(gaps) > 1 or min(gaps) <= 2 * period:
                continue
            due = places[-1] + min(gaps)
            if due < len(self._records) <= due + max(period, _FEW):
                return self._records[due], self._records[places[-1]]
        return None


def _calls(history: History, most: int = _LOOKED_AT) -> tuple[list[int], list[Call]]:
    """(places of the latest records, what was called there), without the store's.

    torch's recorder has no lines, and a stack shows that of the last call alone: then no call of
    its kind has one here.
    """
    kept = [i for i, o in enumerate(history.operations) if o.op not in STORE][-most:]
    calls = [(history.tokens[i], history.operations[i].site) for i in kept]
    without = {token for token, site in calls if not site}
    return kept, [(token, "" if token in without else site) for token, site in calls]


def _by_iterations(calls: Sequence[Call], iterations: list[int], cut: bool) -> bool:
    by_number: dict[int, list[Call]] = {}
    for call, number in zip(calls, iterations, strict=True):
        by_number.setdefault(number, []).append(call)
    numbers = sorted(by_number)
    if cut:
        numbers = numbers[1:]  # of the first one only a part may be left
    for before, number in pairwise(numbers):
        usual, now = by_number[before], by_number[number]
        if number == numbers[-1]:
            usual = usual[: len(now)]
        if now != usual:
            return True
    return False


def _by_repetition(calls: Sequence[Call]) -> bool:
    """Without iteration numbers: the longest stretch that repeats at one distance ends before the
    records do.
    """
    _, end, period = _longest_stretch(calls)
    # A stretch of like calls within one iteration is not a rhythm: that has several kinds of
    # calls in
    # it.
    kinds = {c[0] for c in calls[end - period : end]}
    return len(kinds) > 2 and end < len(calls)


def _longest_stretch(calls: Sequence[object]) -> tuple[int, int, int]:
    """(length, end, period) of the longest stretch that repeats at one distance, at least once;
    zeros where none does.
    """
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
    return best, end, period
