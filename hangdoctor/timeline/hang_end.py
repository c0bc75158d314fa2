"""Where a timeline ends in a hang: an operation that some ranks are in for far longer than any took
before, and who is not in it.

A fact of the records, not a diagnosis: why the others are not in it, `dump` and `diagnose` say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from ..model.operations import STORE, Operation
from ..text import plural
from ..text.durations import duration
from .instances import Key, key_of
from .model import Lane, Timeline

_LEAST_MS = 6000.0  # a job that trains has operations under way at any moment
_FACTOR = 2.0  # so much longer than the longest that was finished


class Hang(Struct):
    """The operation at the end; `for_ms` counts from the first rank's entering to the last thing
    that was seen.
    """

    op: str
    seq: int
    group: str
    ranks: list[int]  # that are in it
    missing: list[int]  # members that never entered it
    unseen: list[int]  # members without any record
    for_ms: float
    others: int = 0  # operations that are unfinished, too

    def words(self) -> str:
        """One sentence."""
        what = f"{self.op} #{self.seq} of {self.group}"
        inside = f"{plural.ranks(self.ranks)} {plural.choose(self.ranks, 'has', 'have')}"
        parts = [
            f"The job hangs at the end: {inside} been in {what} for {duration(self.for_ms / 1e3)}"
        ]
        if self.missing:
            parts.append(f"{plural.ranks(self.missing)} never entered it")
        if self.unseen:
            parts.append(f"{plural.ranks(self.unseen)} left no record")
        if len(parts) == 1:
            parts.append("all members are in it")
        sentence = "; ".join(parts) + "."
        if self.others:
            are = plural.choose(self.others, "is", "are")
            sentence += f" {plural.count(self.others, 'other operation')} {are} unfinished, too."
        return sentence


def find_hang(timeline: Timeline) -> Hang | None:
    """The hang at the end, if there is one; of several operations that one whose missing ranks wait
    nowhere else.
    """
    held = _held(timeline)
    if not held:
        return None
    missing = _missing(timeline, held)
    inside = {rank for ranks in held.values() for rank in ranks}
    first = min(held, key=lambda k: (missing[k] <= inside, min(held[k].values())))
    recorded = {lane.trace.rank for lane in timeline.lanes}
    return Hang(
        _name(timeline, first),
        first[2],
        timeline.group_words(first[0]),
        sorted(held[first]),
        missing=sorted(missing[first] & recorded),
        unseen=sorted(missing[first] - recorded),
        for_ms=round(timeline.end_ns / 1e6 - min(held[first].values()), 1),
        others=len(held) - 1,
    )


def _held(timeline: Timeline) -> dict[Key, dict[int, float]]:
    """Operations that are far longer under way than any was before: the ranks in each, and since
    when.
    """
    longest = max((_longest(lane) for lane in timeline.lanes), default=0.0)
    limit = max(_LEAST_MS, _FACTOR * longest)
    held: dict[Key, dict[int, float]] = {}
    for lane in timeline.lanes:
        for op, key, since in _open(lane):
            if timeline.end_ns / 1e6 - since > limit and op.op not in STORE:
                held.setdefault(key, {}).setdefault(lane.trace.rank, since)
    return held


def _missing(timeline: Timeline, keys: Iterable[Key]) -> dict[Key, set[int]]:
    """The members of each operation that have no record of it."""
    missing = {key: set(_members(timeline, key)) for key in keys}
    for lane in timeline.lanes:
        for op in lane.trace.ops.operations:
            found = key_of(lane.trace.rank, op)
            if found in missing:
                missing[found].discard(lane.trace.rank)
    return missing


def _open(lane: Lane) -> Iterator[tuple[Operation, Key, float]]:
    """Operations that the rank waits in, and since when.

    One that was only begun counts from the rank's last event on.
    """
    last = max([*lane.begin, *lane.end], default=0)
    for j, op in enumerate(lane.trace.ops.operations):
        if lane.end[j] >= 0 or (key := key_of(lane.trace.rank, op)) is None:
            continue
        if op.waited or not (op.asynchronous or op.state == "started"):
            yield op, key, lane.begin[j] / 1e6
        elif (
            lane.begin[j] == last
        ):  # no one may ever wait for it; where nothing follows it, it is where the rank is
            yield op, key, last / 1e6


def _longest(lane: Lane) -> float:
    """Milliseconds of the longest finished operation, without those of the set-up."""
    finished = [
        j
        for j, op in enumerate(lane.trace.ops.operations)
        if lane.end[j] >= 0 and op.op not in STORE
    ]
    return max((lane.end[j] - lane.begin[j] for j in finished), default=0) / 1e6


def _members(timeline: Timeline, key: Key) -> list[int]:
    if key[1] == "message":
        return list(key[3:])
    group = timeline.trace.groups.get(key[0])
    return group.ranks if group is not None else []


def _name(timeline: Timeline, key: Key) -> str:
    """As those call it that are in it."""
    return min(op.op for lane in timeline.lanes for op, found, _ in _open(lane) if found == key)
