"""Reads black boxes (docs/blackbox.md) without torch and without the rank's help, also after its
death.

Finding them is in `box_folders`, their header in `box_header`.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Literal

from msgspec import Struct

from ..errors import BadInput
from ..files import read_regular
from ..model.layout import Layout
from ..model.operations import Group, Mark, Operation, OpState, RankOps, is_unknown
from ..probe import format as fmt
from ..text.ranges import MAX_RANKS, member_runs, number_in
from .box_folders import (
    default_folders,
    ended_beside,
    find_boxes,
    jobs_named,
    left_behind,
    named_folder,
    names_of,
)
from .box_header import BlackBox, Status, iteration_of, number, runs_ahead
from .box_place import LastPlace, left_place_of, place_of
from .box_records import Record, ThreadRow
from .box_signals import CaughtSignal, signals_of
from .box_splits import splits_of
from .box_tables import Tables
from .training_threads import Flow

__all__ = [
    "BlackBox",
    "Contents",
    "Status",
    "ThreadNow",
    "contents_of",
    "default_folders",
    "ended_beside",
    "find_boxes",
    "jobs_named",
    "left_behind",
    "moved",
    "named_folder",
    "names_of",
    "parse_members",
    "read_box",
    "read_ops",
]

_MAX_BYTES = 1 << 30  # the largest that a probe makes
_MARKS: dict[int, Literal["phase", "iteration", "micro_batch"]] = {
    fmt.PHASE: "phase",
    fmt.ITERATION: "iteration",
    fmt.MICRO_BATCH: "micro_batch",
}


class ThreadNow(Struct, omit_defaults=True):
    """One thread of a rank and the operation that it is in, or whose handle it waits for."""

    tid: int
    name: str = ""
    operation: Operation | None = None
    waits_for_handle: bool = False
    waiting_since_s: float = 0.0


class Contents(Struct):
    """Everything in one black box at one moment."""

    box: BlackBox
    ops: RankOps
    threads: list[ThreadNow]
    torn: int = 0  # records skipped because they were being written, or never were written whole
    last_serial: int = 0
    place: LastPlace | None = None  # of its main thread, while nothing got on
    left: LastPlace | None = None  # the last such place, where it got on since
    stepped_s: float = 0.0  # when its optimizers made their last step
    signals: list[CaughtSignal] = []


def read_box(
    path: str | Path, last: int | None = None, owners: Collection[int] | None = None
) -> Contents:
    """Read one black box; with `last`, only N of its latest operations beside all unfinished ones.

    With `owners`, only one that a user of these (or root) has written: a path can be another's file
    a moment later.

    Raises:
        BadInput: no black box, one of another version, or one cut short; the message has the path.
    """
    first, second = _snapshot(Path(path), owners), _snapshot(Path(path), owners)
    return contents_of(Path(path), first, second, last)


def read_ops(path: str | Path) -> RankOps:
    """The operations of one black box.

    Raises:
        BadInput: as `read_box`.
    """
    return read_box(path).ops


def _snapshot(path: Path, owners: Collection[int] | None) -> bytes:
    try:
        return read_regular(path, _MAX_BYTES, owners, links=owners is None)
    except OSError as error:
        raise BadInput(
            f"{path}: {error.strerror}",
            "Is the job still running? Black boxes are removed when it ends cleanly.",
        ) from error


def contents_of(path: Path, first: bytes, second: bytes, last: int | None = None) -> Contents:
    """What two snapshots of one file hold; see `read_box`.

    Raises:
        BadInput: as `read_box`.
    """
    tables = Tables(path, first, second)
    groups, uids = tables.groups()
    rows = tables.threads()
    found = list(tables.records())
    whole = sorted(record for record in found if record is not None)
    torn, newest = len(found) - len(whole), whole[-1].serial if whole else 0
    records = [record for record in whole if not record.is_mark]
    flow = _flow_of(tables, rows, whole)
    since = _since(records, flow, last)
    by_serial = {
        record.serial: _operation(tables, record, uids, rows)
        for record in _kept(records, flow, last, since)
    }
    for row in rows:
        if row.waited in by_serial:
            by_serial[row.waited].waited = True
    operations = [by_serial[serial] for serial in sorted(by_serial)]
    box = tables.box
    ops = RankOps(
        rank=box.rank,
        world_size=max(box.world_size, 0),
        source="blackbox",
        groups=_with_unlisted(groups, operations),
        operations=operations,
        overwritten=newest > tables.slots or len(operations) < len(records),
        iteration=iteration_of(second),
        steps=number(second, fmt.H_STEPS),
        phase=tables.text(number(second, fmt.H_PHASE)),
        heartbeat_s=box.heartbeat_s,
        got_on_s=number(second, fmt.H_GOT_ON) / 1e9,
        finished=box.state == "finished",
        runs_ahead=runs_ahead(second),
        notes=_notes(tables, torn),
        layout=_layout(box.layout, box.world_size),
        marks=_marks(tables, whole, last, since),
        clock=_clock(tables),
        side=_beside(flow, rows),
    )
    threads = [_thread(row, by_serial) for row in rows if row.tid]
    place, left = place_of(first, second), left_place_of(first, second)
    return Contents(
        box,
        ops,
        threads,
        torn,
        last_serial=newest,
        place=place,
        left=left,
        stepped_s=number(second, fmt.H_STEP_SINCE) / 1e9,
        signals=signals_of(second),
    )


def moved(before: Contents, after: Contents) -> bool:
    """Whether the rank made progress between two reads: an operation entered, left or completed, or
    an
    iteration.
    """
    if (before.box.pid, before.box.created_s) != (after.box.pid, after.box.created_s):
        return True
    if before.last_serial != after.last_serial or before.ops.iteration != after.ops.iteration:
        return True
    return before.ops.operations != after.ops.operations or before.ops.phase != after.ops.phase


def _flow_of(tables: Tables, rows: list[ThreadRow], records: list[Record]) -> Flow:
    """Which threads are the training."""
    flow = Flow()
    flow.see(tables.box.pid, [(row.tid, row.name.rstrip(b"\0")) for row in rows])
    signatures = {record.signature for record in records if not record.is_mark}
    set_up = {signature for signature in signatures if tables.is_set_up(signature)}
    flow.learn(records, frozenset(set_up))
    return flow


def _since(records: list[Record], flow: Flow, last: int | None) -> int:
    """Serial number of the first of the training's `last` records; 0 where all are wanted."""
    if last is None or last <= 0:
        return 0
    own = [record.serial for record in records if flow.has(record.thread)]
    return own[-last] if last < len(own) else 0


def _kept(records: list[Record], flow: Flow, last: int | None, since: int) -> list[Record]:
    """The `last` records, all unfinished ones, and those of the training since `since`: what polls
    beside it must not push its operations out.
    """
    begin = 0 if last is None else max(0, len(records) - last)
    older = [
        record
        for record in records[:begin]
        if not record.left_ns or (record.serial >= since and flow.has(record.thread))
    ]
    return older + records[begin:]


def _notes(tables: Tables, torn: int) -> list[str]:
    name = tables.path.name
    notes = [tables.box.note] if tables.box.note else []
    if torn:
        notes.append(f"{torn} records of {name} were being written and are left out")
    if tables.without_members:
        notes.append(
            f"{tables.without_members} groups of {name} have more members than a job can have "
            "and are left out"
        )
    return notes


def _clock(tables: Tables) -> str:
    begin = fmt.H_BOOT_ID[0]
    boot = tables.second[begin : begin + 16]
    return f"{tables.box.host}/{boot[:4].hex()}"


def _layout(text: str, world_size: int) -> Layout | None:
    """``dp=2 pp=2 tp=2``; None where nothing was said, or it does not fit the world size."""
    sizes = dict(word.split("=", 1) for word in text.split() if "=" in word)
    if set(sizes) != {"dp", "pp", "tp"} or not all(number_in(n) > 0 for n in sizes.values()):
        return None
    layout = Layout(number_in(sizes["dp"]), number_in(sizes["pp"]), number_in(sizes["tp"]))
    return layout if layout.world_size == world_size else None


def _marks(tables: Tables, records: list[Record], last: int | None, since: int) -> list[Mark]:
    """The `last` marks of phases and iterations, none of them older than `since`."""
    marks = [record for record in records if record.is_mark]
    return [_mark(tables, m) for m in marks[-(last or len(marks)) :] if m.serial >= since]


def _beside(flow: Flow, rows: list[ThreadRow]) -> list[int]:
    """The threads that are not the training's."""
    return sorted(row.tid for i, row in enumerate(rows) if row.tid and not flow.has(i))


def _mark(tables: Tables, record: Record) -> Mark:
    signed = record.seq - (1 << 64) if record.seq >> 63 else record.seq
    kind = _MARKS.get(record.peer, "phase")
    return Mark(kind, record.entered_ns / 1e9, signed, tables.text(record.signature))


def _thread(row: ThreadRow, by_serial: dict[int, Operation]) -> ThreadNow:
    operation = by_serial.get(row.waited or row.last)
    if operation is not None and not row.waited:
        inside = operation.state == "entered" and operation.thread == row.tid
        operation = operation if inside else None
    return ThreadNow(
        row.tid,
        row.text,
        operation,
        waits_for_handle=bool(row.waited),
        waiting_since_s=row.since_ns / 1e9 if row.waited else 0.0,
    )


def _operation(tables: Tables, record: Record, uids: list[str], rows: list[ThreadRow]) -> Operation:
    inline = tables.inline(record)
    in_record = record.flags & fmt.INLINE_SIGNATURE
    signature = inline if in_record else tables.text(record.signature)
    op, reduce_op, dtype, shapes = (*signature.split("\t"), "", "", "", "")[:4]
    directed = record.flags & (fmt.SEND | fmt.RECV)
    return Operation(
        group=tables.group_of(record, uids),
        seq=record.seq,
        op=op,
        state=_state(record),
        reduce_op=reduce_op,
        root=-1 if directed else record.peer,
        peer=record.peer if directed else -1,
        shapes=shapes,
        dtype=dtype,
        site=tables.text(record.site),
        thread=rows[record.thread].tid if record.thread < len(rows) else 0,
        entered_s=record.entered_ns / 1e9,
        left_s=record.left_ns / 1e9,
        asynchronous=bool(record.flags & fmt.ASYNC),
        iteration=record.iteration,
        failed=record.outcome == fmt.FAILED,
        detail=_tag(record) if directed else _detail(record, inline),
    )


def _detail(record: Record, inline: str) -> str:
    if not record.flags & fmt.INLINE_DETAIL:
        return ""
    return splits_of(inline) if record.in_group and inline[:1] in ("=", "~") else inline


def _tag(record: Record) -> str:
    tag = record.flags >> fmt.TAG_SHIFT
    return f"tag {tag - 1}" if tag else ""


def _state(record: Record) -> OpState:
    if record.left_ns:
        return "done"
    return "started" if record.outcome == fmt.STARTED else "entered"


def _with_unlisted(groups: list[Group], operations: list[Operation]) -> list[Group]:
    """Also the groups of which only operations tell: those that have no entry in the table, or none
    any more.
    """
    listed = {group.uid for group in groups}
    used = dict.fromkeys(op.group for op in operations)
    unlisted = [uid for uid in used if uid and uid not in listed and not is_unknown(uid)]
    return groups + [Group(uid) for uid in unlisted]


def parse_members(text: str) -> list[int]:
    """``0-3,8-20:4`` -> [0, 1, 2, 3, 8, 12, 16, 20]; what is no such text, or names more than a job
    has, gives an empty list.
    """
    runs = member_runs(text) or []
    if sum(map(len, runs)) > MAX_RANKS:
        return []
    return [rank for run in runs for rank in run]
