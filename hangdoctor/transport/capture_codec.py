"""A node's capture on its way to the collector: everything that ranks have in common is sent and
kept once.

    frames, stacks, argument lists, groups, signatures of operations   tables of the node
    ranks, threads, operations                                         numbers that point into them

Ranks of one node have nearly the same stacks and operations, so that eight cost little more than
one. The collector gives one `Shared` to all captures of a round: what is equal is one object there
for the whole job.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct, structs

from ..errors import BadInput, WireError
from ..model.capture import Frame, NodeCapture, Process, RankCapture
from ..model.number_checks import check_node
from ..model.operations import Group, Operation, RankOps
from ..text.ranges import MAX_MEMBERS, MAX_RANKS
from .packed_operations import Columns, PackedOperations, Signature, check, unpack

MAX_INFLATED = 64 << 20  # a node of eight ranks takes some kilobytes
MAX_OBJECTS = 4_000_000  # lists and records in it: one byte can be a list, which takes 64
_LISTS = bytes([*range(0x80, 0xA0), *range(0xDC, 0xE0)])  # as msgpack begins lists and records
_NO_LISTS = bytes(set(range(256)) - set(_LISTS))

_NO_HEAD = RankOps(0)
_P = TypeVar("_P", bound=Process)
_T = TypeVar("_T")
Runs = list[tuple[int, int, int]]  # first, step, count


class Shared:
    """What captures of many nodes have in common."""

    def __init__(self, lazy: bool = False) -> None:
        """`lazy`: operations stay packed until they are looked at, for jobs of thousands of ranks."""
        self.lazy = lazy
        self.members: dict[str, bool] = {}  # groups whose members are on some rank already
        self.frames: dict[tuple[object, ...], Frame] = {}
        self.stacks: dict[tuple[int, ...], list[Frame]] = {}
        self.words: dict[tuple[str, ...], list[str]] = {}
        self.numbers: dict[
            int, int
        ] = {}  # the same number is one object: of 100,000 ranks they would be 150 MB


class _Packed(Struct, array_like=True):
    capture: NodeCapture  # without frames, arguments and operations
    frames: list[Frame] = []
    stacks: list[list[int]] = []
    words: list[list[str]] = []
    groups: list[Group] = []
    members: dict[str, Runs] = {}
    signatures: list[Signature] = []
    threads: list[
        list[int]
    ] = []  # of each process: its arguments, then the stack of each thread of each sample; -1 for none
    ops: list[Columns | None] = []  # of each rank
    before: list[Columns | None] = []


_encoder = msgspec.msgpack.Encoder()


class _Table(Generic[_T]):
    """Numbers things as they come."""

    def __init__(self) -> None:
        self.known: dict[object, int] = {}
        self.things: list[_T] = []

    def number(self, key: object, thing: _T) -> int:
        found = self.known.setdefault(key, len(self.things))
        if found == len(self.things):
            self.things.append(thing)
        return found


def _signature(o: Operation) -> Signature:
    return Signature(
        group=o.group,
        op=o.op,
        state=o.state,
        reduce_op=o.reduce_op,
        root=o.root,
        peer=o.peer,
        shapes=o.shapes,
        dtype=o.dtype,
        site=o.site,
        asynchronous=o.asynchronous,
        waited=o.waited,
        failed=o.failed,
        detail=o.detail,
    )


class _Packer:
    def __init__(self) -> None:
        self.frames: _Table[Frame] = _Table()
        self.stacks: _Table[list[int]] = _Table()
        self.words: _Table[list[str]] = _Table()
        self.groups: _Table[Group] = _Table()
        self.signatures: _Table[Signature] = _Table()
        self.members: dict[str, Runs] = {}

    def process(self, process: Process) -> list[int]:
        numbers = [self.words.number(tuple(process.argv), process.argv)]
        for sample in process.samples:
            numbers += [self._stack(t.frames) if t.frames else -1 for t in sample.threads]
        return numbers

    def _stack(self, frames: list[Frame]) -> int:
        numbers = [self.frames.number(_frame_key(f), f) for f in frames]
        return self.stacks.number(tuple(numbers), numbers)

    def ops(self, ops: RankOps | None) -> Columns | None:
        if ops is None:
            return None
        for group in ops.groups:
            if group.ranks and group.uid not in self.members:
                self.members[group.uid] = to_runs(group.ranks)
        places = [
            self.groups.number((g.uid, g.name), Group(g.uid, name=g.name)) for g in ops.groups
        ]
        packed = Columns(
            structs.replace(ops, groups=[], operations=[]),
            groups=places,
            signatures=[],
            seqs=[],
            threads=[],
            iterations=[],
            times=[],
        )
        seq = at = 0
        for o in ops.operations:
            signature = _signature(o)
            packed.signatures.append(self.signatures.number(signature, signature))
            packed.seqs.append(o.seq - seq)
            packed.threads.append(o.thread)
            packed.iterations.append(o.iteration)
            # As small differences: as floating-point numbers the times would be most of the bytes.
            entered, left = round(o.entered_s * 1e6), round(o.left_s * 1e6)
            packed.times += [entered - at, left - entered + 1 if o.left_s else 0]
            seq, at = o.seq, entered
        return packed

    def before(self, rank: RankCapture) -> Columns | None:
        before, now = rank.ops_before, rank.ops
        if before is None or now is None or not before.operations:
            return self.ops(before)
        count = len(before.operations)
        if before.operations != now.operations[-count:] or len(before.groups) != len(now.groups):
            return self.ops(before)
        packed = self.ops(structs.replace(before, operations=[]))
        assert packed is not None
        packed.same = count
        return packed


def _processes(capture: NodeCapture) -> Iterator[Process]:
    for rank in capture.ranks:
        yield rank
        yield from rank.children


def pack_capture(capture: NodeCapture) -> bytes:
    """A capture as compressed bytes; `capture` stays as it is."""
    packer = _Packer()
    threads = [packer.process(p) for p in _processes(capture)]
    ops = [packer.ops(r.ops) for r in capture.ranks]
    before = [packer.before(r) for r in capture.ranks]
    bare = structs.replace(capture, ranks=[_bare_rank(r) for r in capture.ranks])
    packed = _Packed(
        bare,
        frames=packer.frames.things,
        stacks=packer.stacks.things,
        words=packer.words.things,
        groups=packer.groups.things,
        members=packer.members,
        signatures=packer.signatures.things,
        threads=threads,
        ops=ops,
        before=before,
    )
    return zlib.compress(_encoder.encode(packed), 6)


def _bare_rank(rank: RankCapture) -> RankCapture:
    return structs.replace(
        _bare(rank), ops=None, ops_before=None, children=[_bare(c) for c in rank.children]
    )


def _bare(process: _P) -> _P:
    samples = [
        structs.replace(s, threads=[structs.replace(t, frames=[]) for t in s.threads])
        for s in process.samples
    ]
    return structs.replace(process, argv=[], samples=samples)


def unpack_capture(body: bytes, shared: Shared | None = None) -> NodeCapture:
    """The capture in `body`. Of groups that `shared` knows the members are left out: whoever joins
    the captures of many nodes needs each group once.

    Raises:
        WireError: it is damaged, or larger than `MAX_INFLATED` or `MAX_OBJECTS` when unpacked.
    """
    shared = Shared() if shared is None else shared
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, MAX_INFLATED)
        if inflater.unconsumed_tail or not inflater.eof:
            raise WireError("a capture that is cut off or too large")
        # Other bytes look the same, so that this is more than there are.
        if len(data.translate(None, _NO_LISTS)) > MAX_OBJECTS:
            raise WireError(f"a capture of more than {MAX_OBJECTS:,} lists and records")
        capture = _Unpacker(msgspec.msgpack.decode(data, type=_Packed), shared).capture()
        check_node(capture)
        return capture
    except BadInput as error:
        raise WireError(str(error)) from error
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"the capture is damaged: {str(error)[:120]}") from error
    except (IndexError, ValueError, OverflowError) as error:
        raise WireError("the capture is damaged: it points beyond its own tables") from error


def name_node(capture: NodeCapture, node: str) -> None:
    """Give a capture the name that its agent said hello with, whatever it says itself."""
    capture.node = node
    for rank in capture.ranks:
        rank.node = node
    capture.raw = {}


class _Unpacker:
    def __init__(self, packed: _Packed, shared: Shared) -> None:
        self.packed, self.shared = packed, shared
        self.room = MAX_MEMBERS
        if any(n < 0 for s in packed.stacks for n in s):
            raise IndexError
        frames = [shared.frames.setdefault(_frame_key(f), f) for f in packed.frames]
        self.stacks = [self._stack([frames[n] for n in s]) for s in packed.stacks]
        self.words = [shared.words.setdefault(tuple(w), w) for w in packed.words]
        self.groups = [self._group(g) for g in packed.groups]

    def _stack(self, frames: list[Frame]) -> list[Frame]:
        return self.shared.stacks.setdefault(tuple(map(id, frames)), frames)

    def _group(self, bare: Group) -> tuple[Group, Group]:
        """The group with its members, where no one has them yet, and without."""
        if bare.uid in self.shared.members or bare.uid not in self.packed.members:
            return bare, bare
        members = from_runs(self.packed.members[bare.uid], self.room)
        self.room -= len(members)
        self.shared.members[bare.uid] = True
        return Group(bare.uid, members, bare.name), bare

    def capture(self) -> NodeCapture:
        packed = self.packed
        for process, numbers in zip(_processes(packed.capture), packed.threads, strict=True):
            self._put_process(process, numbers)
        for rank, ops, before in zip(packed.capture.ranks, packed.ops, packed.before, strict=True):
            rank.ops = self._ops(ops, None)
            rank.ops_before = self._ops(before, rank.ops)
        return packed.capture

    def _put_process(self, process: Process, numbers: list[int]) -> None:
        process.argv = self.words[_place(numbers[0])]
        places = iter(numbers[1:])
        for sample in process.samples:
            for thread in sample.threads:
                thread.tid = self.shared.numbers.setdefault(thread.tid, thread.tid)
                thread.name, thread.wchan = sys.intern(thread.name), sys.intern(thread.wchan)
                thread.state, thread.syscall = sys.intern(thread.state), sys.intern(thread.syscall)
                number = next(places, -1)
                if number >= 0:
                    thread.frames = self.stacks[number]

    def _ops(self, told: Columns | None, now: RankOps | None) -> RankOps | None:
        if told is None:
            return None
        ops = told.head
        ops.groups = [self._take_group(_place(n)) for n in told.groups]
        if told.same > 0 and now is not None:
            ops.operations = _tail(now.operations, told.same)
            return ops
        check(told, self.packed.signatures)
        if self.shared.lazy:
            # Encoded once more: its bytes among those of the node would keep all of these.
            told.groups, head = [], told.head
            raw = _encoder.encode(structs.replace(told, head=_NO_HEAD))
            told.head = head
            ops.operations = PackedOperations(
                raw, told, self.packed.signatures, self.shared.numbers
            )
            return ops
        ops.operations = unpack(told, self.packed.signatures, self.shared.numbers)
        return ops

    def _take_group(self, number: int) -> Group:
        whole, bare = self.groups[number]
        self.groups[number] = (bare, bare)
        return whole


def _tail(operations: Sequence[Operation], count: int) -> Sequence[Operation]:
    if isinstance(operations, PackedOperations):
        return operations.tail(count)
    return operations[-count:]


def _place(number: int) -> int:
    if number < 0:
        raise IndexError
    return number


def _frame_key(frame: Frame) -> tuple[object, ...]:
    values: Mapping[str, int] = frame.values
    at = (frame.name, frame.file, frame.line)
    lists = [(name, *numbers) for name, numbers in frame.lists.items()]
    around = (frame.code, frame.catches, frame.counts, frame.past, frame.only, frame.handle)
    return (*at, *around, frame.group, frame.loops, *lists, *values.items(), *frame.texts.items())


def to_runs(ranks: list[int]) -> Runs:
    """``[0, 1, 2, 8, 12, 16]`` -> ``[(0, 1, 3), (8, 4, 3)]``."""
    if len(ranks) > 2:  # most groups are one run, and those of large jobs are long
        first, step = ranks[0], ranks[1] - ranks[0]
        if step and ranks == list(range(first, first + step * len(ranks), step)):
            return [(first, step, len(ranks))]
    runs: Runs = []
    i = 0
    while i < len(ranks):
        step = ranks[i + 1] - ranks[i] if i + 1 < len(ranks) else 1
        end = i + 1
        while end < len(ranks) and ranks[end] - ranks[end - 1] == step:
            end += 1
        runs.append((ranks[i], step, end - i))
        i = end
    return runs


def from_runs(runs: Runs, room: int = MAX_RANKS) -> list[int]:
    """Back again.

    Raises:
        WireError: more members than there is room for, or than a job can have ranks.
    """
    if sum(max(0, count) for _, _, count in runs) > min(room, MAX_RANKS):
        raise WireError("the capture is damaged: a group has more members than the job has ranks")
    if any(
        not 0 <= number < MAX_RANKS
        for first, step, count in runs
        if count > 0
        for number in (first, first + step * (count - 1))
    ):
        raise WireError("the capture is damaged: a group has a member that no job can have")
    return [first + step * i for first, step, count in runs for i in range(count)]
