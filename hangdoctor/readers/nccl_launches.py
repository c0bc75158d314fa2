"""How far the device of one rank has come with what its host enqueued, and whether that can be said.

NCCL reports no kernels of some operations: copies to the rank itself, symmetric kernels. Such a one
looks like an operation that the device has not started.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate

from ..model.operations import OpState
from .nccl_profiler import NcclEvents, Record

_Place = tuple[int, int]  # index and generation of a communicator
_LATE = 1 << 64


class Launches:
    """The operations of one rank of which NCCL reports kernels, on communicators that still exist."""

    def __init__(self, events: NcclEvents) -> None:
        self.events = events
        self.communicators = {key: c for key, c in events.communicators.items() if c.live}
        self.records = [
            r for r in events.records if r.sees_device and place_of(r) in self.communicators
        ]
        # When the newest one that started, or ended, was enqueued.
        self._started: dict[_Place, int] = defaultdict(int)
        self._ended: dict[_Place, int] = defaultdict(int)
        spans: dict[_Place, list[tuple[int, int]]] = defaultdict(list)
        for record in self.records:
            place = place_of(record)
            if has_started(record):
                self._started[place] = max(self._started[place], record.begun_ns)
                spans[place].append((record.begun_ns, record.launched_ns or _LATE))
            if record.ended:
                self._ended[place] = max(self._ended[place], record.begun_ns)
        self._begins: dict[_Place, list[int]] = {}
        self._latest: dict[_Place, list[int]] = {}  # the latest launch of all that began until then
        for place, found in spans.items():
            found.sort()
            self._begins[place] = [begun for begun, _ in found]
            self._latest[place] = list(accumulate((launched for _, launched in found), max))

    def state(self, record: Record) -> OpState:
        """A device takes one launch of a communicator after the other: what a later one shows is true
        of this one too.
        """
        place = place_of(record)
        launched = record.launched_ns
        later = self._ended[place] if has_started(record) else self._started[place]
        if launched and (record.ended or later > launched):
            return "done"
        if has_started(record) or self._with_one_that_started(record):
            return "started"
        return "entered"

    def _with_one_that_started(self, record: Record) -> bool:
        """Whether another operation of the same launch has started: they are one kernel."""
        begins = self._begins.get(place_of(record), [])
        before = bisect_right(begins, record.launched_ns)
        return before > 0 and self._latest[place_of(record)][before - 1] >= record.begun_ns

    def pending(self) -> Iterator[tuple[str, Record]]:
        """What has not started, each with the hash of its communicator."""
        for record in self.records:
            if self.state(record) == "entered":
                yield self.communicators[place_of(record)].hash, record


class Seen:
    """What any rank of a node has seen start."""

    def __init__(self, ranks: Iterable[Launches]) -> None:
        self._kinds: set[tuple[str, tuple[int, ...]]] = set()
        self._numbers: set[tuple[str, int]] = set()
        for launches in ranks:
            for record in filter(has_started, launches.records):
                hashed = launches.communicators[place_of(record)].hash
                self._kinds.add((hashed, _kind(record)))
                if not record.directed:
                    self._numbers.add((hashed, record.number))

    def explains(self, pending: tuple[str, Record]) -> bool:
        """Whether NCCL would report the start of this operation: it did so at a peer, or of one of
        the same kind and size before.
        """
        hashed, record = pending
        if not record.directed and (hashed, record.number) in self._numbers:
            return True
        return (hashed, _kind(record)) in self._kinds


def place_of(record: Record) -> _Place:
    """Which communicator of its process it is of."""
    return record.comm, record.generation


def has_started(record: Record) -> bool:
    """Whether its kernel has begun, as NCCL or the data that left the GPU show."""
    return bool(record.kernels_started or record.started_ns)


def _kind(record: Record) -> tuple[int, ...]:
    return record.kind, record.op, record.elements, record.datatype
