"""The operations around the frontier of a group: who has entered and left which number, rank by
rank.

Only groups in which a rank is stuck are shown, first those of the causes, and of groups that look
alike a few. Ranks with the same row share it, so that a group of 128 ranks takes as many lines as
it has different ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from ...model.diagnosis import Cause, Diagnosis
from ...model.operations import P2P, STORE, Operation, RankOps
from .group_names import GroupNames

_LANES = 8
_ALIKE = 2  # lanes of groups that look the same
_BEFORE, _COLUMNS = 4, 11
_LOOK_BACK = 4000  # records of one rank that are searched

Mark = Literal["left", "in", "not", "lost", "none", "failed"]
MARKS: dict[Mark, str] = {
    "left": "left",
    "in": "entered, not left",
    "not": "not entered",
    "lost": "older than its records",
    "none": "no records",
    "failed": "left by an exception",
}
Key = tuple[str, ...] | tuple[str, int, int]


class Cell(Struct, frozen=True):
    """How far ranks have come in one operation of the group."""

    mark: Mark
    says: str = ""  # where it differs from what most members do: its own operation


class LaneRow(Struct):
    """Members whose cells are all alike; `cause` is an index, -1 without one."""

    ranks: list[int]
    cells: tuple[Cell, ...]
    cause: int


class Lane(Struct):
    """The last operations of one group, a column each, and how far its members have come."""

    title: str
    columns: list[tuple[int, str]]  # number and operation
    rows: list[LaneRow]
    waiters: int
    later: int = 0  # numbers beyond the last column that someone has come to
    alike: int = 0  # further groups that look the same


def build(
    diagnosis: Diagnosis, ops: dict[int, RankOps], names: GroupNames
) -> tuple[list[Lane], int]:
    """(lanes, further groups in which a rank is stuck)."""
    fronts = _fronts(ops)
    blamed = {r: i for i, cause in reversed(list(enumerate(diagnosis.causes))) for r in cause.ranks}
    order = sorted(fronts, key=lambda k: _weight(k, fronts[k], diagnosis.causes, names))
    lanes: list[Lane] = []
    shapes: dict[object, list[Lane]] = {}
    left_out = 0
    for key in order:
        shape = _shape(key, fronts[key], names)
        alike = shapes.setdefault(shape, [])
        culprit = any(r in blamed for r in _members(key, names))
        if len(alike) >= (_ALIKE if not culprit else _LANES) or len(lanes) >= _LANES:
            left_out += 1
            if alike:
                alike[-1].alike += 1
            continue
        alike.append(_lane(key, fronts[key], ops, names, blamed=blamed))
        lanes.append(alike[-1])
    return lanes, left_out


def _key(op: Operation, rank: int) -> Key:
    """One counter: the collectives of a group, the transfers of a pair in one direction, one store
    operation.
    """
    if op.op in P2P:
        return (op.group, rank, op.peer) if op.op == "send" else (op.group, op.peer, rank)
    return (op.group, op.op) if op.op in STORE else (op.group,)


def _fronts(ops: dict[int, RankOps]) -> dict[Key, dict[int, int]]:
    """Of each counter on which a rank is stuck: rank -> the earliest number that it has entered and
    not left.
    """
    fronts: dict[Key, dict[int, int]] = {}
    for rank, one in ops.items():
        if one.finished:
            continue
        for op in one.operations:
            if op.state != "done":
                here = fronts.setdefault(_key(op, rank), {})
                here[rank] = min(here.get(rank, op.seq), op.seq)
    return fronts


def _members(key: Key, names: GroupNames) -> Sequence[int]:
    if len(key) == 3:
        return sorted({r for r in key[1:] if isinstance(r, int) and r >= 0})
    return names.members(key[0])


def _weight(
    key: Key, front: dict[int, int], causes: Iterable[Cause], names: GroupNames
) -> tuple[object, ...]:
    """Sort key: the operations that the causes name, then groups with a culprit, then those with
    most waiters.
    """
    members = set(_members(key, names))
    named = next(
        (
            i
            for i, c in enumerate(causes)
            if c.where.seq in front.values() and set(c.where.group_ranks or ()) == members
        ),
        99,
    )
    first = next((i for i, c in enumerate(causes) if members & set(c.ranks)), 99)
    return named, first, -len(front), len(members), min(front.values()), str(key)


def _shape(key: Key, front: dict[int, int], names: GroupNames) -> tuple[object, ...]:
    if len(key) == 3:
        return ("transfer", len(front))
    return (names.axis(key[0]), len(names.members(key[0])), len(front), key[1:])


def _usual(
    records: Iterable[dict[int, Operation]], number: int
) -> tuple[str, str, str, str, int] | None:
    """What most ranks did at this number; None where none has a record of it."""
    signatures = Counter(found[number].signature() for found in records if number in found)
    return signatures.most_common(1)[0][0] if signatures else None


def _lane(
    key: Key,
    front: dict[int, int],
    ops: dict[int, RankOps],
    names: GroupNames,
    blamed: dict[int, int],
) -> Lane:
    members = _members(key, names) or sorted(front)
    low, high = min(front.values()) - _BEFORE, max(front.values())
    records = {r: _records(ops[r], r, key, low) for r in members if r in ops}
    high = max([high, *(max(found, default=high) for found in records.values())])
    first = max(1 if len(key) != 3 else min(front.values()) - _BEFORE, low, 0)
    numbers = range(first, min(high, first + _COLUMNS - 1) + 1)
    columns: list[tuple[int, str]] = []
    cells: dict[int, list[Cell]] = {r: [] for r in members}
    for number in numbers:
        usual = None if len(key) == 3 else _usual(records.values(), number)
        columns.append((number, usual[0] if usual else ""))
        for r in members:
            cells[r].append(_cell(records.get(r), number, usual))
    rows: dict[object, LaneRow] = {}
    for r in members:
        same = (tuple(cells[r]), blamed.get(r, -1))
        rows.setdefault(same, LaneRow([], same[0], same[1])).ranks.append(r)
    ordered = sorted(rows.values(), key=lambda row: row.ranks[0])
    return Lane(
        _title(key, names),
        columns,
        ordered,
        len(front),
        later=max(0, high - (numbers[-1] if numbers else high)),
    )


def _records(one: RankOps, rank: int, key: Key, low: int) -> dict[int, Operation]:
    """A rank's operations on one counter by number, back to `low` and one before."""
    found: dict[int, Operation] = {}
    for op in reversed(one.operations[-_LOOK_BACK:]):
        if op.group == key[0] and _key(op, rank) == key:
            found.setdefault(op.seq, op)
            if op.seq < low:
                break
    return found


def _cell(
    found: dict[int, Operation] | None, number: int, usual: tuple[str, str, str, str, int] | None
) -> Cell:
    if found is None:
        return Cell("none")
    op = found.get(number)
    if op is None:
        return Cell("lost" if found and number < max(found) else "not")
    return Cell(_mark(op), _difference(op, usual) if usual is not None else "")


def _mark(op: Operation) -> Mark:
    if op.failed:
        return "failed"
    return "left" if op.state == "done" else "in"


def _difference(op: Operation, usual: tuple[str, str, str, str, int]) -> str:
    """What an operation's signature has that the others' have not; "" where they agree."""
    mine = op.signature()
    if mine == usual:
        return ""
    if mine[0] != usual[0]:
        return mine[0]
    words = ("", "shapes", "dtype", "reduce op", "root")
    return "; ".join(
        f"{words[i]} {mine[i]}, others {usual[i]}" for i in range(1, 5) if mine[i] != usual[i]
    )


def _title(key: Key, names: GroupNames) -> str:
    if len(key) == 3:
        ends = [f"rank {r}" if isinstance(r, int) and r >= 0 else "any rank" for r in key[1:]]
        return f"transfers from {ends[0]} to {ends[1]}"
    return f"{key[1]}, {names.label(key[0])}" if len(key) == 2 else names.label(key[0])


def why_none(diagnosis: Diagnosis, origin: str, recorded: int) -> str:
    """Why there is no lane to show."""
    if recorded:
        return "No rank was inside a recorded operation when it was captured."
    if origin == "files":
        return "These files have no recorded operations: stacks show where a rank is, not which call it is in. To see calls, add Flight Recorder dumps (TORCH_FR_BUFFER_SIZE=2000) or start the job with hangdoctor run -- CMD."
    return "This job has no black boxes, so its operations were not recorded. If it is started with hangdoctor run -- CMD, this shows for each group which ranks have entered which operation."
