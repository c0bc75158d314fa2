"""The operations of all ranks, small: columns instead of records, and what repeats once.

A bundle of a thousand ranks with 2,000 operations each is 500 MB as JSON; so it keeps them beside
the rest. Exact: what is unpacked equals what was packed, to the last bit of its times, or a replay
would not be the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from itertools import accumulate, pairwise
from operator import itemgetter

import msgspec
from msgspec import Struct, structs

from ..errors import BadInput
from ..files import free_memory
from ..model.operations import Group, Mark, Operation, RankOps

# Parts of a second that times are counted in: what a float of today's wall clock resolves, and
# microseconds.
_UNITS = (float(1 << 22), 1e6)
# As objects the operations take up to N times the bytes that they are packed in. Nothing in a file
# distinguishes a large job from one that was made to fill the memory, so that the limit is what
# this machine has.
_SPREAD = 64
_LEAST_INFLATED, _MAX_INFLATED = 64 << 20, 1 << 30
_FIELDS = Operation.__struct_fields__
_VARYING = ("seq", "entered_s", "left_s", "iteration", "thread")
_FIXED = tuple(n for n in _FIELDS if n not in _VARYING)
_fixed_of = itemgetter(*(i for i, n in enumerate(_FIELDS) if n in _FIXED))

Key = tuple[int, bool]  # place of the rank in the capture, whether of the first sample


class _Ops(Struct, omit_defaults=True):
    """One history. `kinds` are places in the common table; times are ticks since the one before, or
    exact floats.
    """

    of: Key
    rest: RankOps  # without operations, and without the members of its groups
    groups: list[int] = []
    kinds: list[int] = []
    seqs: list[int] = []  # less the one before of the same kind
    iterations: list[int] = []  # less the one before
    threads: list[int] = []
    unit: float = 0.0  # 0: times are exact floats
    entered: list[int] = []
    lasted: list[int] = []  # until left, plus 1; 0 where it has not been left
    exact: list[tuple[float, float]] = []
    mark_kinds: list[tuple[str, str]] = []  # kind and text, each once
    marks_unit: float = 0.0
    # Place in mark_kinds; number and ticks, each less that of the one before.
    marks: list[tuple[int, int, int]] = []
    exact_marks: list[Mark] = []


class _All(Struct, omit_defaults=True):
    kinds: list[tuple[object, ...]]
    groups: list[Group]
    histories: list[_Ops]


def pack(histories: Iterable[tuple[Key, RankOps]]) -> bytes:
    """Compressed; `unpack` gives the same back."""
    kinds: dict[tuple[object, ...], int] = {}
    groups: dict[tuple[str, tuple[int, ...], str], int] = {}
    packed = [_pack_one(key, ops, kinds, groups) for key, ops in histories]
    listed = [Group(uid, list(ranks), name) for uid, ranks, name in groups]
    return zlib.compress(msgspec.msgpack.encode(_All(list(kinds), listed, packed)), 6)


def _pack_one(
    key: Key,
    ops: RankOps,
    kinds: dict[tuple[object, ...], int],
    groups: dict[tuple[str, tuple[int, ...], str], int],
) -> _Ops:
    found = _Ops(key, structs.replace(ops, operations=[], groups=[], marks=[]))
    found.groups = [
        groups.setdefault((g.uid, tuple(g.ranks), g.name), len(groups)) for g in ops.groups
    ]
    last: dict[int, int] = {}
    for op in ops.operations:
        kind = kinds.setdefault(_fixed_of(structs.astuple(op)), len(kinds))
        found.kinds.append(kind)
        found.seqs.append(op.seq - last.get(kind, 0))
        last[kind] = op.seq
    found.iterations = _steps([op.iteration for op in ops.operations])
    found.threads = _steps([op.thread for op in ops.operations])
    found.unit = _unit([t for op in ops.operations for t in (op.entered_s, op.left_s)])
    if found.unit:
        entered = [round(op.entered_s * found.unit) for op in ops.operations]
        left = [round(op.left_s * found.unit) for op in ops.operations]
        found.entered = _steps(entered)
        found.lasted = [_lasted(b, a) for a, b in zip(entered, left, strict=True)]
    else:
        found.exact = [(op.entered_s, op.left_s) for op in ops.operations]
    _pack_marks(found, ops.marks)
    return found


def _unit(times: list[float]) -> float:
    """The coarsest that all of them come back from unchanged; 0 where none is."""
    for unit in _UNITS:
        if all(round(t * unit) / unit == t for t in times):
            return unit
    return 0.0


def _pack_marks(found: _Ops, marks: list[Mark]) -> None:
    unit = found.marks_unit = _unit([m.at_s for m in marks])
    if not unit:
        found.exact_marks = marks
        return
    kinds: dict[tuple[str, str], int] = {}
    places = [kinds.setdefault((m.kind, m.text), len(kinds)) for m in marks]
    found.mark_kinds = list(kinds)
    numbers = _steps([m.number for m in marks])
    ticks = _steps([round(m.at_s * unit) for m in marks])
    found.marks = list(zip(places, numbers, ticks, strict=True))


def _unpack_marks(one: _Ops) -> list[Mark]:
    if one.exact_marks:
        return one.exact_marks
    found = []
    number = ticks = 0
    for place, more, later in one.marks:
        number, ticks = number + more, ticks + later
        kind, text = one.mark_kinds[place]
        found.append(Mark(kind, ticks / one.marks_unit, number, text))  # type: ignore[arg-type]
    return found


def _steps(values: list[int]) -> list[int]:
    """Differences: what changes seldom or little becomes small numbers."""
    return [b - a for a, b in pairwise([0, *values])]


def _lasted(left: int, entered: int) -> int:
    """0 for not left; else the length, moved away from 0. Lengths can be negative: clocks are set."""
    if left == 0:
        return 0
    length = left - entered
    return length + 1 if length >= 0 else length


def unpack(data: bytes) -> dict[Key, RankOps]:
    """Back again.

    Raises:
        BadInput: it is damaged.
    """
    inflater = zlib.decompressobj()
    try:
        limit = min(max(_LEAST_INFLATED, free_memory() // _SPREAD), _MAX_INFLATED)
        plain = inflater.decompress(data, limit)
        if inflater.unconsumed_tail:
            raise BadInput(
                f"the operations in the bundle need more than {limit * _SPREAD >> 30} GiB of memory, and this machine has less free",
                "If the job has thousands of ranks, diagnose it on a machine with more memory.",
            )
        if not inflater.eof:
            raise BadInput("the operations in the bundle are truncated")
        whole = msgspec.msgpack.decode(plain, type=_All)
        fixed = [_checked(dict(zip(_FIXED, kind, strict=True))) for kind in whole.kinds]
        return {one.of: _unpack_one(one, fixed, whole.groups) for one in whole.histories}
    except (
        zlib.error,
        msgspec.DecodeError,
        ValueError,
        IndexError,
        TypeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        raise BadInput(
            f"the operations in the bundle are damaged: {str(error)[:200]}",
            "Copy the bundle again.",
        ) from error


def _checked(kind: dict[str, object]) -> dict[str, object]:
    """The fields, where an operation can have them."""
    msgspec.convert({"seq": 0, **kind}, type=Operation)
    return kind


def _unpack_one(one: _Ops, fixed: list[dict[str, object]], groups: list[Group]) -> RankOps:
    last: dict[int, int] = {}
    iterations, threads = accumulate(one.iterations), accumulate(one.threads)
    columns = (one.kinds, one.seqs, _times(one), iterations, threads)
    operations = []
    for kind, step, (entered, left), iteration, thread in zip(*columns, strict=True):
        last[kind] = last.get(kind, 0) + step
        operation = Operation(
            **fixed[kind],  # type: ignore[arg-type]
            seq=last[kind],
            entered_s=entered,
            left_s=left,
            iteration=iteration,
            thread=thread,
        )
        operations.append(operation)
    return structs.replace(
        one.rest,
        operations=operations,
        groups=[_copy(groups[g]) for g in one.groups],
        marks=_unpack_marks(one),
    )


def _times(one: _Ops) -> list[tuple[float, float]]:
    """(entered, left) of each operation in seconds; left is 0 where it has not been left."""
    if not one.unit:
        return one.exact
    found = []
    entered = 0
    for step, lasted in zip(one.entered, one.lasted, strict=True):
        entered += step
        found.append((entered / one.unit, _left(entered, lasted) / one.unit))
    return found


def _left(entered: int, lasted: int) -> int:
    if lasted == 0:
        return 0
    return entered + lasted - 1 if lasted > 0 else entered + lasted


def _copy(group: Group) -> Group:
    return Group(group.uid, list(group.ranks), group.name)
