"""Runs the ranks' programs with NCCL's semantics and shows where each of them ends up.

A host enqueues and returns; it stops only where it reads a result back, where its run-ahead is used
up, or where a fault stops it. A device takes its operations in order, except that an asynchronous
one runs on its group's own stream. An operation completes when every member has started it with one
signature: NCCL does not compare signatures, and sides that disagree never meet. A send completes
with the n-th recv of the other side. Nothing decides beforehand who hangs: the programs are run, by
a worklist, until nobody can go on. Times are virtual seconds that follow from the work between
operations.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field

from hangdoctor.model.layout import Layout

from .sim_layout import Mesh, axes_of
from .sim_program import Step

HOST_S = 20e-6  # what the host takes to enqueue one operation
WIRE_S = 0.0005  # from the last arrival to the completion
NEVER = math.inf


class Members:
    """Groups of a layout: numbers by rank and axis, ranks by number. Number 0 is the world."""

    def __init__(self, layout: Layout | Mesh) -> None:
        self.layout = layout
        self.axes = axes_of(layout)
        self.stage = [layout.coordinates(r)["pp"] for r in range(layout.world_size)]
        self.ranks: list[list[int]] = [list(range(layout.world_size))]
        self.axis: list[str] = ["world"]
        self.of: dict[str, list[int]] = {"world": [0] * layout.world_size}
        for axis in self.axes[1:]:
            numbers = [0] * layout.world_size
            for ranks in layout.groups(axis):
                for r in ranks:
                    numbers[r] = len(self.ranks)
                self.ranks.append(ranks)
                self.axis.append(axis)
            self.of[axis] = numbers

    def peer(self, rank: int, hop: int) -> int:
        """The rank `hop` pipeline stages on; after the last one comes the first."""
        stages = self.ranks[self.of["pp"][rank]]
        return stages[(self.stage[rank] + hop) % len(stages)]


@dataclass(slots=True)
class _Meeting:
    """One instance of an operation: who is there, and since when."""

    size: int
    signature: tuple[object, ...]
    agreed: bool = True
    latest: float = 0.0
    arrivals: list[tuple[int, int]] = field(default_factory=list)


class Simulation:
    """State of all ranks; `run()` takes it as far as it goes."""

    def __init__(self, members: Members, programs: list[list[Step]], run_ahead: list[int]) -> None:
        """`programs` and `run_ahead` by rank; programs may be shared between ranks."""
        n = len(programs)
        self.members = members
        self.programs = programs
        self.run_ahead = run_ahead
        self.stop_host = [len(p) for p in programs]  # the host never enqueues this step
        self.stop_device = list(self.stop_host)  # the device never starts it (the process is gone)
        self.slowness = [1.0] * n
        self.stuck: set[tuple[int, int]] = set()  # (group number, seq) that never completes
        self.at = [0] * n  # the step that the device is at
        self.enters = [array("d") for _ in range(n)]
        self.starts = [array("d", [NEVER]) * len(p) for p in programs]
        self.ends = [array("d", [NEVER]) * len(p) for p in programs]
        self._clock = [0.0] * n
        self._blocked = [-1] * n  # the step whose end the device waits for
        self._streams: list[deque[tuple[int, float]]] = [deque() for _ in range(n)]
        self._stream_end = [0.0] * n
        self._draining = [False] * n
        self._meetings: dict[object, _Meeting] = {}
        self._work: deque[int] = deque(range(n))

    def run(self) -> None:
        while self._work:
            self._advance(self._work.popleft())

    @property
    def hung(self) -> bool:
        return any(at < len(p) for at, p in zip(self.at, self.programs, strict=True))

    def drained(self, rank: int) -> bool:
        """The device has done all that the host will ever give it, and the host is not finished."""
        at = self.at[rank]
        return at == self.stop_host[rank] < len(self.programs[rank]) and not self._streams[rank]

    def pending(self, rank: int) -> list[tuple[int, float]]:
        """(step, when it could start) of what runs beside the rank's program and has not ended."""
        return list(self._streams[rank])

    def _advance(self, rank: int) -> None:
        """Let one device go on until it waits for someone."""
        steps, ends, starts = self.programs[rank], self.ends[rank], self.starts[rank]
        stop = min(self.stop_host[rank], self.stop_device[rank])
        i, now = self.at[rank], self._clock[rank]
        while i < stop:
            step = steps[i]
            if step.op == "wait":
                self._enter(rank, i)
                if self._streams[rank]:
                    self._draining[rank] = True
                    break
                now = ends[i] = max(now, self._stream_end[rank])
                i += 1
                continue
            if starts[i] == NEVER:
                ready = max(now + step.work * self.slowness[rank], self._enter(rank, i))
                if step.asynchronous:
                    self._streams[rank].append((i, ready))
                    if len(self._streams[rank]) == 1:
                        self._arrive(rank, i, ready)
                    i, now = i + 1, ready
                    continue
                self._blocked[rank] = i
                self.at[rank], self._clock[rank] = i, now
                self._arrive(rank, i, ready)
            if ends[i] == NEVER:
                break
            self._blocked[rank] = -1
            now = max(now, ends[i])
            i += 1
        self.at[rank], self._clock[rank] = i, now

    def _enter(self, rank: int, i: int) -> float:
        """When the host enqueues step i, which it does in order."""
        times, steps, ends = self.enters[rank], self.programs[rank], self.ends[rank]
        while len(times) <= i:
            k = len(times)
            t = (times[-1] if k else 0.0) + HOST_S
            if k and (steps[k - 1].host_sync or steps[k - 1].op == "wait") and ends[k - 1] != NEVER:
                t = max(t, ends[k - 1])
            behind = k - self.run_ahead[rank]
            if behind >= 0 and ends[behind] != NEVER:
                t = max(t, ends[behind])
            times.append(t)
        return times[i]

    def _arrive(self, rank: int, i: int, when: float) -> None:
        step = self.programs[rank][i]
        self.starts[rank][i] = when
        if step.p2p:
            peer = self.members.peer(rank, step.hop)
            pair = (rank, peer) if step.op == "send" else (peer, rank)
            key: tuple[int, ...] = (*pair, step.seq)
            size, signature = 2, step.message()
        else:
            group = self.members.of[step.axis][rank]
            key = (group, step.seq)
            size, signature = len(self.members.ranks[group]), step.signature()
        meeting = self._meetings.get(key)
        if meeting is None:
            meeting = self._meetings[key] = _Meeting(size, signature)
        meeting.agreed = meeting.agreed and meeting.signature == signature
        meeting.latest = max(meeting.latest, when)
        meeting.arrivals.append((rank, i))
        if len(meeting.arrivals) == size and meeting.agreed and key not in self.stuck:
            del self._meetings[key]
            self._complete(meeting)

    def _complete(self, meeting: _Meeting) -> None:
        end = meeting.latest + WIRE_S
        for rank, i in meeting.arrivals:
            self.ends[rank][i] = end
            if self._blocked[rank] == i:
                self._work.append(rank)
            elif self._streams[rank] and self._streams[rank][0][0] == i:
                self._next_on_stream(rank, end)

    def _next_on_stream(self, rank: int, end: float) -> None:
        stream = self._streams[rank]
        stream.popleft()
        self._stream_end[rank] = end
        if stream:
            following, ready = stream[0]
            self._arrive(rank, following, max(ready, end))
        elif self._draining[rank]:
            self._draining[rank] = False
            self._work.append(rank)

    def entered_by(self, rank: int, when: float) -> int:
        """How many steps the host has enqueued at a finite time; also those that the device has not
        come to.
        """
        steps, ends, times = self.programs[rank], self.ends[rank], self.enters[rank]
        limit = min(self.stop_host[rank], self.stop_device[rank])
        known = bisect_right(times, when)
        if known < len(times):
            return known
        last = times[-1] if times else 0.0
        while known < limit:
            last += HOST_S
            before = steps[known - 1] if known else None
            waits = (
                before is not None
                and (before.host_sync or before.op == "wait")
                and ends[known - 1] > when
            )
            behind = known - self.run_ahead[rank]
            if waits or last > when or (behind >= 0 and ends[behind] > when):
                break
            known += 1
        return known
