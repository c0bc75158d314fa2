"""The Python calls of a rank as tracks: one a thread, calls within calls."""

from __future__ import annotations

from ..errors import BadInput
from ..model.calls import CallTrace, Event
from ..readers.calls import read_calls
from .model import RankTrace, Timeline
from .tracks import Edge, Slice, Track

CALLS = 100_000  # events of a rank that are shown when no one says how many


def call_tracks(timeline: Timeline, trace: RankTrace, last: int) -> list[Track]:
    """Tracks of the last N events; none where the rank was never traced or its ring cannot be read."""
    calls = trace.calls
    if calls is None and trace.calls_path and last:
        try:
            calls = read_calls(trace.calls_path, last)
        except FileNotFoundError:
            return []
        except BadInput as error:
            timeline.trace.notes.append(f"rank {trace.rank}: {error}")
            return []
    if calls is None or not calls.events or not last:
        return []
    correction = timeline.correction(trace)
    threads: dict[int, _Thread] = {}
    latest = 0
    for event in calls.events[-last:]:
        at = max(0, correction.at(calls.base_ns + event.at_ns) - timeline.base_ns)
        latest = max(latest, at)
        if event.kind == "begin":  # what came before has nothing to do with what follows
            for thread in threads.values():
                thread.close(at)
            continue
        threads.setdefault(event.thread, _Thread(calls)).add(event, at)
    timeline.end_ns = max(timeline.end_ns, latest)
    found = []
    for index, thread in threads.items():
        if calls.state != "tracing":
            thread.close(latest)  # no one saw how they went on
        name = calls.threads[index].name or f"thread {calls.threads[index].tid}"
        found.append(Track(f"calls, {name}", edges=thread.edges()))
    return found


class _Thread:
    """Puts the events of one thread together; calls whose beginning the ring has lost begin with
    the first event.
    """

    def __init__(self, calls: CallTrace) -> None:
        self._calls = calls
        self._edges: list[Edge] = []
        self._open: list[int] = []
        self._slices: list[Slice] = []  # of these
        self._lost: list[Slice] = []  # left without having been entered, the innermost first
        self._first = self._last = -1

    def add(self, event: Event, at: int) -> None:
        at = self._last = max(at, self._last)
        self._first = at if self._first < 0 else self._first
        if event.kind in ("call", "open"):
            self._open.append(event.function)
            self._slices.append(self._slice(event.function, at))
            self._edges.append((at, self._slices[-1]))
            return
        if event.function in self._open:
            while self._open.pop() != event.function:  # a return that was not recorded
                self._slices.pop()
                self._edges.append((at, None))
            _say_how(self._slices.pop(), event)
            self._edges.append((at, None))
        elif not self._open:
            self._lost.append(self._slice(event.function, self._first))
            _say_how(self._lost[-1], event)
            self._edges.append((at, None))

    def close(self, at: int) -> None:
        self._last = max(at, self._last)
        self._edges += [(self._last, None)] * len(self._open)
        self._open.clear()
        self._slices.clear()

    def edges(self) -> list[Edge]:
        before: list[Edge] = [(self._first, slice) for slice in reversed(self._lost)]
        return before + self._edges

    def _slice(self, number: int, at: int) -> Slice:
        function = self._calls.functions[number]
        return Slice(
            function.name,
            at,
            -1,
            "call",
            facts={"module": function.module} if function.module else {},
            site=(function.name, function.file, function.line),
        )


def _say_how(slice: Slice, event: Event) -> None:
    """A call that was left by an exception is no call that returned."""
    if event.kind == "exception":
        slice.facts["left by"] = "an exception"
