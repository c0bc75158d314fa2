"""The rows of `trace tail`: events with the depth of their threads, rounds of a loop said once."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from ...diagnosis.calls import main_tid
from ...diagnosis.wording.terms import long_frame
from ...model.calls import CallTrace, Event
from ...text.durations import duration

_SIGNS = {"call": ">", "return": "<", "exception": "!", "open": "=", "begin": "-"}
_DEEPEST = 30
_SHOWN = 4  # calls that a thread is in, the innermost
_QUIET_S = 1.0
_LONGEST = 12  # lines of one round
_ROUNDS = 2  # that are shown; more are counted


class Row(Struct, frozen=True):
    """One event: when, and what in words; rows are alike where the words are."""

    clock: str
    says: str


class Rows:
    """Makes rows of events; keeps the calls that each thread is in."""

    def __init__(self, all_threads: bool) -> None:
        self.all = all_threads
        self.main = 0
        self.stacks: dict[int, list[str]] = {}
        self.last_s = 0.0

    def begin(self, trace: CallTrace) -> None:
        """Forget what was; the rows of another trace come."""
        self.main = main_tid(trace)
        self.stacks = {}

    def of(self, trace: CallTrace, events: Sequence[Event]) -> Iterator[Row]:
        """A row for each event that is shown."""
        for event in events:
            if event.kind == "begin":
                self.stacks.clear()
                yield Row(_clock(trace, event), "- tracing switched on")
                continue
            thread = trace.threads[event.thread]
            if not self.all and thread.tid != self.main:
                continue
            name = long_frame(trace.functions[event.function])
            depth = self._depth(thread.tid, event, name)
            self.last_s = trace.at_s(event)
            who = f"{thread.name[:14]:<14} " if self.all else ""
            says = f"{who}{'  ' * min(depth, _DEEPEST)}{_SIGNS[event.kind]} {name}"
            yield Row(_clock(trace, event), says)

    def _depth(self, tid: int, event: Event, name: str) -> int:
        stack = self.stacks.setdefault(tid, [])
        if event.kind in ("call", "open"):
            stack.append(name)
            return len(stack) - 1
        while stack and name in stack and stack.pop() != name:
            pass
        return len(stack)


def _clock(trace: CallTrace, event: Event) -> str:
    at = trace.at_s(event)
    return time.strftime("%H:%M:%S", time.localtime(at)) + f".{int(at % 1 * 1e6):06d}"


def where_words(stack: Sequence[str], quiet_s: float, doing: str) -> str:
    """Since when nothing was recorded (-1: nothing ever was), the calls that the thread is still in,
    and what it does there; `doing` is "" where it runs no more.

    A rank that works is quiet, too, while it is in one long call or in code that is not followed.
    """
    if quiet_s < 0:
        return "no calls recorded"
    inside = " > ".join(stack[-_SHOWN:])
    if quiet_s < _QUIET_S or not doing:
        return f"last call {duration(quiet_s)} ago" + (f"; in {inside}" if inside else "")
    quiet = f"no followed call began or ended for {duration(quiet_s)}"
    return f"{quiet}; it is in {inside or 'code that is not followed'}, {doing}"


class Fold:
    """Rows as lines, some at a time; of a loop the first rounds, and how many came after them."""

    def __init__(self) -> None:
        self._said: list[str] = []  # the words of the last lines
        self._round: list[str] = []  # of these the last ones, which repeat
        self._more = 0  # rounds since
        self._clock = ""  # of the last one
        self._held: list[Row] = []  # the beginning of one more, perhaps

    def lines(self, rows: Iterable[Row]) -> Iterator[str]:
        """The lines for these rows; what may go on as before is kept until it is known."""
        rest, self._held = [*self._held, *rows], []
        while rest:
            size = len(self._round)
            if size and [row.says for row in rest[:size]] == self._round[: len(rest)]:
                whole, rest = rest[:size], rest[size:]
                if len(whole) < size:
                    self._held = whole
                    return
                self._more, self._clock = self._more + 1, whole[-1].clock
                continue
            yield from self._number()
            row = rest.pop(0)
            yield self._say(row)

    def rest(self) -> Iterator[str]:
        """What was kept: how often the last rounds came, and the beginning of one more."""
        yield from self._number()
        held, self._held = self._held, []
        goes_on = [*self._round[len(held) :], *self._round[: len(held)]]
        yield from map(self._say, held)
        self._round = goes_on or self._round

    def _number(self) -> Iterator[str]:
        if self._more:
            what = "line" if len(self._round) == 1 else f"{len(self._round)} lines"
            yield f"{self._clock} ... the last {what} x {self._more} more"
            self._said = []  # what comes is no round with what was before that line
        self._more = 0

    def _say(self, row: Row) -> str:
        self._said = [*self._said, row.says][-_ROUNDS * _LONGEST :]
        self._round = _repeated(self._said)
        return f"{row.clock} {row.says}"


def _repeated(said: Sequence[str]) -> list[str]:
    """The shortest round that the last lines are several of; empty without one."""
    for size in range(1, min(_LONGEST, len(said) // _ROUNDS) + 1):
        last = list(said[-size:])
        if list(said[-_ROUNDS * size :]) == last * _ROUNDS:
            return last
    return []
