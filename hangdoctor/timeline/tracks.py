"""The tracks of one rank: its marks, its threads' operations, and what was in flight beside them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import pairwise

from msgspec import Struct

from ..model.operations import P2P, STORE, WHOLE_JOB, Mark, Operation, spoken
from ..text.ranges import number_in
from .model import Lane, Timeline

_LANES = 64  # tracks for what is in flight at once; what exceeds them is left out
_SIZES = {
    "64": 8,
    "32": 4,
    "16": 2,
    "8": 1,
    "double": 8,
    "float": 4,
    "half": 2,
    "bool": 1,
    "long": 8,
    "int": 4,
    "short": 2,
}
Flows = dict[int, tuple[int, bool]]


class Slice(Struct):
    """Nanoseconds on the common axis; `end` -1: it has not ended."""

    name: str
    begin: int
    end: int
    category: str
    facts: dict[str, int | str] = {}
    site: tuple[str, str, int] = ("", "", 0)  # function, file, line
    flow: tuple[int, bool] | None = None
    inner: list[Slice] = []
    kind: dict[str, int | str] | None = (
        None  # further facts, one object for all slices that share them
    )


Edge = tuple[int, Slice | None]  # when, and what begins; None: the innermost ends


class Track(Struct):
    """A row of the timeline: a thread of the rank, or a kind of event."""

    name: str
    slices: list[Slice] = []
    thread: bool = False
    main: bool = False
    edges: list[Edge] = []  # instead of slices, where they nest deeply

    def in_order(self) -> Iterator[Edge]:
        """What begins and ends, in the order of time; what never ends only begins."""
        yield from self.edges
        open_: list[Slice] = []
        todo = list(reversed(self.slices))
        while todo:
            slice = todo.pop()
            while open_ and 0 <= open_[-1].end <= slice.begin:
                yield open_.pop().end, None
            yield slice.begin, slice
            open_.append(slice)
            todo.extend(reversed(slice.inner))
        yield from ((slice.end, None) for slice in reversed(open_) if slice.end >= 0)


def tracks_of(timeline: Timeline, lane: Lane, flows: Flows) -> list[Track]:
    """All tracks of a rank, in the order in which they are shown; slices of a track are in order
    and do not overlap.
    """
    marks = [
        Track(title, found)
        for kind, title in (
            ("iteration", "iterations"),
            ("phase", "phases"),
            ("micro_batch", "micro-batches"),
        )
        if (found := _mark_slices(timeline, lane, kind))
    ]
    return marks + _threads(timeline, lane, flows)


def _mark_slices(timeline: Timeline, lane: Lane, kind: str) -> list[Slice]:
    marks = [m for m in lane.trace.ops.marks if m.kind == kind]
    if kind == "micro_batch":  # one ends at the latest where its iteration does
        marks = sorted(
            marks + [m for m in lane.trace.ops.marks if m.kind == "iteration"],
            key=lambda m: (m.at_s, m.kind == "micro_batch"),
        )
    found: list[Slice] = []
    for mark in marks:
        at = timeline.at(lane.trace, mark.at_s)
        if found:
            if found[-1].end < 0:
                found[-1].end = max(at, found[-1].begin)
            at = max(at, found[-1].end)
        begun = _begun_by(mark, kind, at)
        if begun is not None:
            found.append(begun)
    return found


def _begun_by(mark: Mark, kind: str, at: int) -> Slice | None:
    """The slice that begins with a mark; None where it only ends the one before."""
    if mark.kind == "phase":
        return Slice(mark.text, at, -1, "phase") if mark.text else None
    if mark.kind != kind:
        return None
    name = f"{kind.replace('_', '-')} {mark.number}"
    return Slice(name, at, -1, kind, facts={"number": mark.number})


def _threads(timeline: Timeline, lane: Lane, flows: Flows) -> list[Track]:
    by_thread: dict[int, list[Slice]] = {}
    flying: list[Slice] = []
    for j, op in enumerate(lane.trace.ops.operations):
        slices = flying if op.asynchronous else by_thread.setdefault(op.thread, [])
        slices.append(_operation(timeline, lane, j, flows))
    first = next(iter(by_thread), 0)
    tracks = []
    for tid, slices in by_thread.items():
        usual = "MainThread" if tid == first else f"thread {tid}"
        name = lane.trace.threads.get(tid) or usual
        is_main = tid == (lane.trace.pid or first)
        tracks.append(Track(name, _in_order(slices), True, is_main))
    for n, row in enumerate(_rows(flying)):
        tracks.append(Track(f"in flight {n + 1}" if n else "in flight", row))
    return tracks


def _in_order(slices: list[Slice]) -> list[Slice]:
    """A thread is in one operation at a time; where a clock was set back, an end may seem to lie
    behind the next begin.
    """
    slices.sort(key=lambda s: s.begin)
    for one, following in pairwise(slices):
        if one.end < 0 or one.end > following.begin:
            one.end = following.begin
    return slices


def _rows(slices: list[Slice]) -> list[list[Slice]]:
    """Overlapping slices on as few rows as they need."""
    rows: list[list[Slice]] = []
    for slice in sorted(slices, key=lambda s: s.begin):
        row = next((r for r in rows if 0 <= r[-1].end <= slice.begin), None)
        if row is None and len(rows) < _LANES:
            rows.append(row := [])
        if row is not None:
            row.append(slice)
    return rows


def _operation(timeline: Timeline, lane: Lane, j: int, flows: Flows) -> Slice:
    op = lane.trace.ops.operations[j]
    kind = (
        op.group,
        op.op,
        op.shapes,
        op.dtype,
        op.reduce_op,
        op.detail,
        op.root,
        op.peer,
        op.site,
    )
    known = timeline.words.get(kind)
    if known is None:
        known = timeline.words[kind] = _kind(timeline, op)
    name, fixed, site = known
    facts: dict[str, int | str] = {"seq": op.seq}
    if op.iteration >= 0:
        facts["iteration"] = op.iteration
    if op.failed:
        facts["outcome"] = "failed"
    elif op.state == "done" and not op.left_s:
        facts["outcome"] = "finished, time not recorded"
    category = "operation"
    if lane.end[j] < 0:
        facts["open_ms"] = (timeline.end_ns - lane.begin[j]) // 1_000_000
        name, category = f"UNFINISHED {name} #{op.seq}", "operation,unfinished"
    return Slice(
        name,
        lane.begin[j],
        lane.end[j],
        category,
        facts=facts,
        site=site,
        flow=flows.get(j),
        inner=[],
        kind=fixed,
    )


def _detail_name(op: Operation) -> str:
    if op.op in P2P:
        return "tag"
    return "keys" if op.op in STORE else "parts"


def _kind(
    timeline: Timeline, op: Operation
) -> tuple[str, dict[str, int | str], tuple[str, str, int]]:
    """What operations that differ in number and time only have in common: name, facts, call site."""
    facts: dict[str, int | str] = {"group": timeline.group_words(op.group)}
    for key, value in (
        ("shapes", op.shapes),
        ("dtype", op.dtype),
        ("reduce_op", op.reduce_op),
        (_detail_name(op), op.detail.removeprefix("tag ")),
    ):
        if value:
            facts[key] = value
    size = bytes_of(op)
    if size:
        facts["bytes"] = size
    if op.root >= 0 or op.peer >= 0:
        facts["root" if op.root >= 0 else "peer"] = max(op.root, op.peer)
    return op_words(timeline, op), facts, site_of(op.site)


def site_of(text: str) -> tuple[str, str, int]:
    """``step (train.py:40)`` -> its three parts; empty ones where it is no such text."""
    head, _, line = text.removesuffix(")").rpartition(":")
    name, bracket, file = head.rpartition(" (")
    known = bracket and text.endswith(")") and number_in(line) >= 0
    return (name, file, number_in(line)) if known else ("", "", 0)


def op_words(timeline: Timeline, op: Operation) -> str:
    """``all_reduce dp``, of the whole job ``all_reduce``, ``send to 3``: what a slice is called."""
    if op.op in ("send", "recv") and op.peer >= 0:
        return f"{op.op} {'to' if op.op == 'send' else 'from'} {op.peer}"
    group = timeline.trace.groups.get(op.group)
    name = spoken(group.name) if group is not None else ""
    return f"{op.op} {name}" if name and name != WHOLE_JOB else op.op


def bytes_of(op: Operation) -> int:
    """Bytes of the inputs, as far as shapes and dtype tell them; 0 where they do not."""
    kind = op.dtype.removeprefix("torch.").lower()
    digits = re.search(r"(64|32|16|8)", kind)
    width = _SIZES.get(digits[1] if digits else kind, 0)
    count = 0
    for text in re.findall(r"\[([\d, ]*)\]", op.shapes):
        count += math.prod(number_in(n.strip(), 0) for n in text.split(",") if n.strip())
    return width * count
