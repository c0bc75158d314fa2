"""Operations of one rank as columns: small on the wire, and unpacked only where a pass looks at
them.

Of a large job most operations are never looked at: where a rank is shows in its unfinished ones and
its newest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import overload

import msgspec
from msgspec import Struct

from ..model.operations import Operation, OpState, RankOps, Records

_MOST = 1 << 62
_copy: Callable[[Operation], Operation] = Operation.__copy__  # type: ignore[attr-defined]


class Signature(Struct, array_like=True, frozen=True, gc=False):
    """What operations of one kind have in common."""

    group: str
    op: str
    state: OpState
    reduce_op: str
    root: int
    peer: int
    shapes: str
    dtype: str
    site: str
    asynchronous: bool
    waited: bool
    failed: bool
    detail: str


class Columns(Struct, array_like=True):
    """Operations of one rank, a list for each field that differs between them."""

    head: RankOps  # without groups and operations
    groups: list[int]
    signatures: list[int]
    seqs: list[int]  # each less the one before
    threads: list[int]
    iterations: list[int]
    times: list[int]  # microseconds: since the one before was entered, and until it was left
    same: int = -1  # of the first sample: it was the last so many operations of the second


_decoder: msgspec.msgpack.Decoder[Columns] = msgspec.msgpack.Decoder(Columns)


def check(columns: Columns, signatures: Sequence[Signature]) -> None:
    """Whether all of it can be unpacked.

    Raises:
        IndexError, ValueError, OverflowError: it cannot.
    """
    lengths = {len(columns.seqs), len(columns.threads), len(columns.iterations)}
    if lengths | {len(columns.times) / 2} != {len(columns.signatures)}:
        raise ValueError("columns of several lengths")
    places = columns.signatures
    if places and not 0 <= min(places) <= max(places) < len(signatures):
        raise IndexError
    for steps in (columns.seqs, columns.times[::2]):
        if sum(map(abs, steps)) >= _MOST:  # no sum of some of them is more
            raise OverflowError


def _blank(s: Signature) -> Operation:
    """An operation of this signature, without its number, thread and times."""
    return Operation(
        s.group,
        0,
        s.op,
        s.state,
        reduce_op=s.reduce_op,
        root=s.root,
        peer=s.peer,
        shapes=s.shapes,
        dtype=s.dtype,
        site=s.site,
        asynchronous=s.asynchronous,
        waited=s.waited,
        failed=s.failed,
        detail=s.detail,
    )


def unpack(
    columns: Columns, signatures: Sequence[Signature], numbers: dict[int, int]
) -> list[Operation]:
    """All operations; equal numbers are one object, which `numbers` keeps."""
    one = numbers.setdefault
    like: dict[int, Operation] = {}  # one operation of each signature: to copy it is the fastest
    seqs, entered = accumulate(columns.seqs), accumulate(columns.times[::2])
    rows = zip(
        columns.signatures,
        seqs,
        columns.threads,
        columns.iterations,
        entered,
        columns.times[1::2],
        strict=True,
    )
    found = []
    for place, seq, thread, iteration, at, until in rows:
        if place not in like:
            like[place] = _blank(signatures[place])
        operation = _copy(like[place])
        operation.seq = one(seq, seq)
        operation.thread = one(thread, thread)
        operation.iteration = one(iteration, iteration)
        operation.entered_s = at / 1e6
        operation.left_s = (at + until - 1) / 1e6 if until else 0.0
        found.append(operation)
    return found


class PackedOperations(Records):
    """The columns as they came. The unfinished operations and the newest are there, each one object
    for good.
    """

    __slots__ = ("_begin", "_count", "_kept", "_newest", "_raw", "_signatures")

    def __init__(
        self, raw: bytes, columns: Columns, signatures: Sequence[Signature], numbers: dict[int, int]
    ) -> None:
        self._raw, self._signatures = raw, signatures
        self._begin, self._count = 0, len(columns.signatures)
        side = set(columns.head.side)
        threads = columns.threads
        newest = next((i for i in reversed(range(self._count)) if threads[i] not in side), -1)
        wanted = [i for i, n in enumerate(columns.signatures) if signatures[n].state != "done"]
        self._newest = newest
        places = {*wanted, newest, self._count - 1} - {-1}
        self._kept = _some(columns, signatures, numbers, sorted(places))

    def tail(self, count: int) -> PackedOperations:
        """The last so many of them, as the same objects."""
        part = object.__new__(PackedOperations)
        part._raw, part._signatures, part._kept = self._raw, self._signatures, self._kept
        part._count = min(count, self._count)
        part._begin = self._begin + self._count - part._count
        part._newest = self._newest
        return part

    def unfinished(self) -> list[Operation]:
        """Those that have not ended, oldest first."""
        return [o for i, o in self._kept.items() if i >= self._begin and o.state != "done"]

    def newest(self) -> Operation | None:
        """The last one of the training's own threads."""
        return self._kept[self._newest] if self._newest >= self._begin else None

    def groups(self) -> set[str]:
        """Uids of their groups, perhaps also of some that are not among them any more."""
        columns = _decoder.decode(self._raw)
        return {self._signatures[n].group for n in set(columns.signatures)}

    def _all(self) -> list[Operation]:
        columns = _decoder.decode(self._raw)
        found = unpack(columns, self._signatures, {})
        for place, operation in self._kept.items():
            found[place] = operation
        return found[self._begin :]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._all())

    def __reversed__(self) -> Iterator[Operation]:
        return reversed(self._all())

    @overload
    def __getitem__(self, place: int) -> Operation: ...
    @overload
    def __getitem__(self, place: slice) -> list[Operation]: ...
    def __getitem__(self, place: int | slice) -> Operation | list[Operation]:
        if isinstance(place, slice):
            return self._all()[place]
        at = place if place >= 0 else place + self._count
        if not 0 <= at < self._count:
            raise IndexError(place)
        return self._kept.get(self._begin + at) or self._all()[at]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._all() == list(other)

    def __hash__(self) -> int:
        return id(self)


def _some(
    columns: Columns, signatures: Sequence[Signature], numbers: dict[int, int], places: list[int]
) -> dict[int, Operation]:
    """The operations at these places."""
    seqs, entered = list(accumulate(columns.seqs)), list(accumulate(columns.times[::2]))
    rows = Columns(
        head=columns.head,
        groups=[],
        signatures=[columns.signatures[i] for i in places],
        seqs=_steps([seqs[i] for i in places]),
        threads=[columns.threads[i] for i in places],
        iterations=[columns.iterations[i] for i in places],
        times=[],
    )
    for step, i in zip(_steps([entered[i] for i in places]), places, strict=True):
        rows.times += [step, columns.times[2 * i + 1]]
    return dict(zip(places, unpack(rows, signatures, numbers), strict=True))


def _steps(numbers: list[int]) -> list[int]:
    return [b - a for a, b in zip([0, *numbers], numbers, strict=False)]
