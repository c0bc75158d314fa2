"""The ranks: what state each is in, where it stands, its threads; shared strings and stacks are
kept once.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Literal

from msgspec import Struct

from ...model.capture import JobCapture, RankCapture, ThreadSample
from ...model.diagnosis import Diagnosis, RankLine
from ...model.layout import Layout
from ...model.operations import P2P, Operation
from ...text.durations import duration
from ..tree import short_file
from .group_names import GroupNames

State = Literal["wait", "move", "stop", "gone", "miss", "other"]
STATES: dict[State, str] = {
    "wait": "waiting in a collective, send or recv",
    "move": "moving",
    "stop": "stopped",
    "gone": "gone: the process has ended",
    "miss": "missing: not captured",
    "other": "elsewhere, not in a collective",
}
_MOVES = frozenset({"moved", "looping", "running", "stirred"})
_OPEN_OPS = 4  # operations under way that a rank's details name


class Rank(Struct):
    """One rank of the job, also one that no one saw."""

    rank: int
    state: State
    cause: int  # index into the diagnosis's causes, -1 for a rank that is not a culprit
    node: str = ""
    line: RankLine | None = None


def all_ranks(diagnosis: Diagnosis) -> list[Rank]:
    """Every rank from 0 to the world size, in order."""
    lines = {line.rank: line for line in diagnosis.ranks}
    waiting = {r for w in diagnosis.waits for r in w.ranks}
    blamed = {r: i for i, cause in reversed(list(enumerate(diagnosis.causes))) for r in cause.ranks}
    homes = {r: m.node for m in diagnosis.missing if m.node for r in m.ranks}
    found = []
    for rank in sorted({*range(diagnosis.job.world_size), *lines, *blamed}):
        line = lines.get(rank)
        state = _state(diagnosis, line, rank in waiting)
        found.append(
            Rank(
                rank,
                state,
                blamed.get(rank, -1),
                (line.node if line else "") or homes.get(rank, ""),
                line=line,
            )
        )
    return found


def _state(diagnosis: Diagnosis, line: RankLine | None, waits: bool) -> State:
    if line is None:
        return "miss"
    process, _, motion = line.state.partition(" ")
    if process in ("gone", "ended"):
        return "gone"
    if process[:1] in ("T", "t"):
        return "stop"
    if diagnosis.status == "healthy" and motion in _MOVES:
        return "move"
    if waits:
        return "wait"
    return "move" if motion in _MOVES else "other"


class Table:
    """Values numbered in the order in which they come, each kept once."""

    def __init__(self) -> None:
        self._ids: dict[Hashable, int] = {}
        self.rows: list[Any] = []

    def add(self, value: Hashable, row: Any = None) -> int:
        """The number of a value; a new one gets a row: `row`, else the value itself."""
        found = self._ids.get(value)
        if found is None:
            found = self._ids[value] = len(self.rows)
            self.rows.append(value if row is None else row)
        return found


class Frames:
    """Frames and stacks of the whole page by number."""

    def __init__(self) -> None:
        self.files, self.frames, self.stacks = Table(), Table(), Table()

    def frame(self, name: str, file: str, line: int, code: str = "") -> int:
        """The number of a frame; the line of code is that of the first that had one."""
        at = self.files.add(file, [file, short_file(file)])
        row = [name, at, line, code] if code else [name, at, line]
        return self.frames.add((name, at, line), row)

    def stack(self, thread: ThreadSample) -> int:
        """Outermost frame first."""
        numbers = [
            self.frame(f.name, f.file, f.line, f.code.strip()) for f in reversed(thread.frames)
        ]
        return self.stacks.add(tuple(numbers), numbers)


def details(
    ranks: list[Rank], capture: JobCapture, layout: Layout | None, names: GroupNames, frames: Frames
) -> dict[str, Any]:
    """What the page's script shows of a rank: columns of `rows`, and the tables that they point
    into.
    """
    nodes, places, threads = Table(), Table(), Table()
    captured: dict[int, RankCapture] = {}
    for one in capture.ranks():
        if one.rank not in captured or captured[one.rank].gone:
            captured[one.rank] = one
    rows = []
    for r in ranks:
        line, own = r.line, captured.get(r.rank)
        rows.append(
            [
                r.rank,
                r.state,
                r.cause,
                nodes.add(r.node),
                line.pid if line else 0,
                line.gpu if line else "",
                line.local_rank if line else -1,
                line.state if line else "",
                places.add(line.place if line else ""),
                threads.add(*_threads(own, frames)),
                _operations(own, capture.taken, names),
                _position(own),
            ]
        )
    return {
        "rows": rows,
        "nodes": nodes.rows,
        "places": places.rows,
        "threads": threads.rows,
        "states": STATES,
        "layout": [layout.dp, layout.pp, layout.tp] if layout else None,
    }


def _threads(own: RankCapture | None, frames: Frames) -> tuple[Hashable, list[list[Any]]]:
    """The threads of the last sample that has stacks, as [name, state, kernel wait, holds the GIL,
    stack].
    """
    samples = own.samples if own is not None else []
    told = next((s for s in reversed(samples) if any(t.frames for t in s.threads)), None)
    rows = (
        [[t.name, t.state, t.wchan, int(t.gil), frames.stack(t)] for t in told.threads if t.frames]
        if told
        else []
    )
    return tuple(map(tuple, rows)), rows


def _operations(own: RankCapture | None, taken: float, names: GroupNames) -> list[str]:
    """Sentences: what the rank is in, and what it finished last."""
    if own is None or own.ops is None:
        return []
    operations = own.ops.operations
    opened = [o for o in operations if o.state != "done"]
    said = [f"in {_spell(o, names)}{_since(o, taken)}" for o in opened[:_OPEN_OPS]]
    if len(opened) > _OPEN_OPS:
        said.append(f"and {len(opened) - _OPEN_OPS} more unfinished")
    last = next((o for o in reversed(operations) if o.state == "done"), None)
    return said + ([f"last finished: {_spell(last, names)}"] if last is not None else [])


def _spell(op: Operation, names: GroupNames) -> str:
    if op.op in P2P:
        return f"{op.op} #{op.seq} {'to' if op.op == 'send' else 'from'} {f'rank {op.peer}' if op.peer >= 0 else 'any rank'}"
    return f"{op.op} #{op.seq} of {names.label(op.group)}" + (
        f", {op.shapes} {op.dtype}".rstrip() if op.shapes else ""
    )


def _since(op: Operation, taken: float) -> str:
    seconds = taken - op.entered_s if op.entered_s > 0 else 0.0
    return f", for {duration(seconds)}" if seconds >= 1 else ""


def _position(own: RankCapture | None) -> str:
    ops = own.ops if own is not None else None
    if ops is None:
        return ""
    parts = [
        f"iteration {ops.iteration}" if ops.iteration >= 0 else "",
        f"phase {ops.phase}" if ops.phase else "",
    ]
    return ", ".join(p for p in parts if p) + (" (finished)" if ops.finished else "")
