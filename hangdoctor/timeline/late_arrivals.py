"""Who arrived last, how long the others waited for it, and how much of the time went into
communication.

Waiting is passed on: a rank that waited in its tensor-parallel group comes late to its
data-parallel one, though it is not slow. So of the time that a member waited for the last one, what
the last one had itself waited longer than that member in the same step is not its fault: it *had to
wait*, it did not *make others wait*. And one delay is felt by many, one after another: how long a
rank made the others wait in a step is what the one of them that lost most by it lost, not the sum
over all.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from ..model.operations import STORE, Operation
from ..text import plural
from .clocks import clock_lines
from .hang_end import Hang, find_hang
from .instances import FROM_ROOT, TO_ROOT
from .model import Lane, Member, OperationInstance, Timeline
from .tracks import bytes_of

SCHEMA = "hangdoctor.stragglers/1"


class StepShare(Struct):
    """One step. Times in milliseconds; `last` is the rank that made the others wait most, -1 if
    none.
    """

    step: int
    begin_ms: float  # since the timeline's beginning
    duration_ms: float  # median of the ranks
    last: int
    held_up_ms: float  # by that rank: what the rank lost that waited longest for it
    waited_ms: float  # the longest that any rank waited in it
    communication: float  # share of the step inside operations, median of the ranks


class RankShare(Struct):
    """One rank over all steps; times in milliseconds, `communication` a share of 1."""

    rank: int
    node: str
    held_up_ms: float  # how long it made others wait, over all steps
    steps_last: int  # in how many steps it was the one that made the others wait most
    waited_ms: float
    communication: float


class GroupShare(Struct):
    """One group over all steps."""

    group: str
    operations: int
    waited_ms: float  # summed over members
    moving_ms: float  # from the last one's entering to its leaving, summed over operations
    bytes: int  # of one member's inputs, summed over operations
    last: int  # the rank that it waited for most, -1 if none
    held_up_ms: float


class LateArrivals(Struct):
    """`held_up_ms[rank's place][step's place]`; None where the rank did nothing in that step."""

    job: str
    steps: list[StepShare]
    ranks: list[RankShare]
    groups: list[GroupShare]
    held_up_ms: list[list[float | None]]
    elapsed_ms: float  # from the first step's beginning to the last one's end
    clocks: list[str]
    notes: list[str]
    hang: Hang | None = None  # in which the timeline ends; it is not counted in anything above
    schema: str = SCHEMA


def analyse(timeline: Timeline) -> LateArrivals:
    """Pure: everything from the timeline alone."""
    return _Analysis(timeline).result()


class _Analysis:
    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.lanes = timeline.lanes
        self.notes = list(timeline.trace.notes)
        self.step_of = _steps(timeline, self.notes)
        self.steps = sorted({s for steps in self.step_of for s in steps if s >= 0})
        place = {step: n for n, step in enumerate(self.steps)}
        self.place = [[place.get(s, -1) for s in steps] for steps in self.step_of]
        self.lost: dict[
            tuple[int, int], dict[int, float]
        ] = {}  # (who, step) -> which -> milliseconds
        self.held = [[0.0] * len(self.steps) for _ in self.lanes]
        self.waited = [[0.0] * len(self.steps) for _ in self.lanes]
        self.groups: dict[str, GroupShare] = {}
        self.blame: dict[str, dict[int, float]] = {}

    def result(self) -> LateArrivals:
        """Everything that is counted, in steps."""
        for instance in sorted(self._countable(), key=self._last_entry):
            self._count(instance)
        for (culprit, n), lost in self.lost.items():
            self.held[culprit][n] = max(lost.values())
        placed = list(zip(self.lanes, self.place, strict=True))
        busy = [_communication(lane, place, len(self.steps)) for lane, place in placed]
        spans = [_spans(lane, place, len(self.steps)) for lane, place in placed]
        steps = [self._step(n, busy, spans) for n in range(len(self.steps))]
        return LateArrivals(
            self.timeline.trace.job,
            steps,
            [self._rank(i, steps, busy[i], spans[i]) for i in range(len(self.lanes))],
            sorted(self._group_shares(), key=lambda g: -g.waited_ms),
            held_up_ms=[_held_in(row, own) for row, own in zip(self.held, spans, strict=True)],
            elapsed_ms=round(_elapsed(spans), 4),
            clocks=clock_lines(self.timeline.clocks),
            notes=self.notes,
            hang=find_hang(self.timeline),
        )

    def _countable(self) -> list[OperationInstance]:
        """Operations that every member has left, at a time that was recorded; notes on the others."""
        every = self.timeline.instances
        whole = [i for i in every if self._is_whole(i)]
        if len(whole) < len(every):
            unfinished = plural.count(len(every) - len(whole), "unfinished operation")
            are = plural.choose(len(every) - len(whole), "is", "are")
            self.notes.append(f"{unfinished} {are} not counted")
        known = [i for i in whole if all(self._op(m).left_s for m in i.members)]
        if len(known) < len(whole):
            self.notes.append(
                f"{len(whole) - len(known)} operations have no recorded end and are not counted"
            )
        if any(r.ops.runs_ahead for r in self.timeline.trace.ranks):
            self.notes.append(
                "the backend returns after enqueueing: "
                "these are times on the hosts, not on the GPUs"
            )
        return known

    def _is_whole(self, instance: OperationInstance) -> bool:
        return all(self.lanes[i].end[j] >= 0 for i, j in instance.members)

    # ----------------------------------------------------------------- instances

    def _last_entry(self, instance: OperationInstance) -> int:
        return max(self.lanes[i].begin[j] for i, j in instance.members)

    def _count(self, instance: OperationInstance) -> None:
        members = [m for m in instance.members if not self._op(m).asynchronous]
        place = max((self.place[i][j] for i, j in members), default=-1)
        if (
            len(members) < 2
            or place < 0
            or instance.op in ("init_process_group", "new_group", "destroy_process_group")
        ):
            return
        culprit, waits = self._waits(instance, members)
        caused = 0.0
        for i, wait in waits.items():
            own = wait - max(0.0, self.waited[culprit][place] - self.waited[i][place])
            if own > 0:
                lost = self.lost.setdefault((culprit, place), {})
                lost[i] = lost.get(i, 0.0) + own
                caused = max(caused, own)
        for i, wait in waits.items():
            self.waited[i][place] += wait
        self._count_group(instance, members, sum(waits.values()), culprit, caused=caused)

    def _waits(
        self, instance: OperationInstance, members: list[Member]
    ) -> tuple[int, dict[int, float]]:
        """(place of the rank that was waited for, place of each rank that waited -> milliseconds)."""
        entered = {i: self.lanes[i].begin[j] for i, j in members}
        left = {i: self.lanes[i].end[j] for i, j in members}
        root = next(
            (i for i, j in members if self.lanes[i].trace.rank == self._op((i, j)).root), None
        )
        last = max(entered, key=lambda i: entered[i])
        waiting = list(entered)
        if root is not None and instance.op in FROM_ROOT:
            last = root
        elif root is not None and instance.op in TO_ROOT:
            waiting = [root]
        until = entered[last]
        return last, {
            i: max(0, min(until, left[i]) - entered[i]) / 1e6 for i in waiting if i != last
        }

    def _count_group(
        self,
        instance: OperationInstance,
        members: list[Member],
        waited: float,
        culprit: int,
        caused: float,
    ) -> None:
        share = self.groups.setdefault(
            instance.group,
            GroupShare(
                self.timeline.group_words(instance.group),
                0,
                0.0,
                0.0,
                bytes=0,
                last=-1,
                held_up_ms=0.0,
            ),
        )
        share.operations += 1
        share.waited_ms += waited
        until = self._last_entry(instance)
        share.moving_ms += max(0, max(self.lanes[i].end[j] for i, j in members) - until) / 1e6
        share.bytes += max(bytes_of(self._op(m)) for m in members)
        if caused > 0:
            blame = self.blame.setdefault(instance.group, {})
            rank = self.lanes[culprit].trace.rank
            blame[rank] = blame.get(rank, 0.0) + caused

    def _op(self, member: Member) -> Operation:
        return self.lanes[member[0]].trace.ops.operations[member[1]]

    # ----------------------------------------------------------------- sums

    def _group_shares(self) -> list[GroupShare]:
        for uid, share in self.groups.items():
            blame = self.blame.get(uid, {})
            share.last = max(blame, key=lambda r: blame[r], default=-1)
            share.held_up_ms = round(blame.get(share.last, 0.0), 4)
            share.waited_ms, share.moving_ms = round(share.waited_ms, 4), round(share.moving_ms, 4)
        return list(self.groups.values())

    def _step(
        self, n: int, busy: list[list[float]], spans: list[list[tuple[int, int] | None]]
    ) -> StepShare:
        begins: list[int] = []
        durations: list[float] = []
        shares: list[float] = []
        for span, communication in zip(spans, busy, strict=True):
            there = span[n]
            if there is None:
                continue
            begin, end = there
            begins.append(begin)
            durations.append((end - begin) / 1e6)
            if end > begin:
                shares.append(min(1.0, communication[n] / durations[-1]))
        worst = max(range(len(self.lanes)), key=lambda i: self.held[i][n], default=-1)
        held = self.held[worst][n] if worst >= 0 else 0.0
        return StepShare(
            self.steps[n],
            round(min(begins, default=0) / 1e6, 4),
            _median(durations),
            self.lanes[worst].trace.rank if held > 0 else -1,
            held_up_ms=round(held, 4),
            waited_ms=round(max((row[n] for row in self.waited), default=0.0), 4),
            communication=_median(shares),
        )

    def _rank(
        self, i: int, steps: list[StepShare], busy: list[float], spans: list[tuple[int, int] | None]
    ) -> RankShare:
        trace = self.lanes[i].trace
        whole = sum((s[1] - s[0]) / 1e6 for s in spans if s is not None)
        last = sum(s.last == trace.rank for s in steps)
        share = round(min(1.0, sum(busy) / whole), 4) if whole else 0.0
        return RankShare(
            trace.rank,
            trace.node,
            round(sum(self.held[i]), 4),
            last,
            waited_ms=round(sum(self.waited[i]), 4),
            communication=share,
        )


def _median(values: list[float]) -> float:
    return round(statistics.median(values), 4) if values else 0.0


def _held_in(held: list[float], spans: list[tuple[int, int] | None]) -> list[float | None]:
    """Milliseconds by step; None where the rank did nothing in that step."""
    return [round(ms, 4) if span else None for ms, span in zip(held, spans, strict=True)]


def _elapsed(spans: list[list[tuple[int, int] | None]]) -> float:
    known = [span for row in spans for span in row if span is not None]
    return (max(end for _, end in known) - min(begin for begin, _ in known)) / 1e6 if known else 0.0


def _steps(timeline: Timeline, notes: list[str]) -> list[list[int]]:
    """Of each rank's each operation the step it belongs to, -1 for none: what the job reports, else
    what its widest group does.
    """
    told = [[op.iteration for op in lane.trace.ops.operations] for lane in timeline.lanes]
    if any(max(row, default=-1) >= 0 for row in told):
        return told
    size = max((len(i.members) for i in timeline.instances), default=0)
    widest = Counter(
        (i.group, i.op) for i in timeline.instances if len(i.members) == size and i.op not in STORE
    )
    if not widest:
        return told
    (group, op), _ = widest.most_common(1)[0]  # not the barrier that the set-up made once
    notes.append(
        f"the job does not report iterations (hangdoctor.probe.iteration), so each {op} of {timeline.group_words(group)} ends a step"
    )
    ends: list[dict[int, int]] = [{} for _ in timeline.lanes]  # by rank: operation -> its step
    for instance in timeline.instances:
        if (instance.group, instance.op) == (group, op):
            for i, j in instance.members:
                ends[i][j] = instance.seq
    sizes = [len(lane.begin) for lane in timeline.lanes]
    return [_up_to_ends(size, own) for size, own in zip(sizes, ends, strict=True)]


def _up_to_ends(size: int, ends: dict[int, int]) -> list[int]:
    """Of each operation the step of the next end, itself included; after the last end one more."""
    row, step = [0] * size, max(ends.values(), default=0) + 1
    for j in reversed(range(size)):
        step = ends.get(j, step)
        row[j] = step
    return row


def _communication(lane: Lane, place: Sequence[int], steps: int) -> list[float]:
    """Milliseconds inside finished operations that the rank waits in, for each step; overlapping
    ones count once.
    """
    found = [0.0] * steps
    until = 0
    order = sorted(range(len(lane.begin)), key=lambda j: lane.begin[j])
    for j in order:
        if place[j] < 0 or lane.end[j] < 0 or lane.trace.ops.operations[j].asynchronous:
            continue
        begin = max(lane.begin[j], until)
        if lane.end[j] > begin:
            found[place[j]] += (lane.end[j] - begin) / 1e6
            until = lane.end[j]
    return found


def _spans(lane: Lane, place: Sequence[int], steps: int) -> list[tuple[int, int] | None]:
    """When each step of a rank began and ended: it ends where the next begins; the last with its
    last finished operation.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for j, n in enumerate(place):
        if n >= 0:
            first[n] = min(lane.begin[j], first.get(n, lane.begin[j]))
            last[n] = max(lane.end[j], lane.begin[j], last.get(n, 0))
    found: list[tuple[int, int] | None] = [None] * steps
    order = sorted(first)
    for n, following in pairwise(order):
        found[n] = (first[n], max(last[n], first[following]))
    for n in order[-1:]:
        found[n] = (first[n], last[n])
    return found
