"""What node agents and the collector say to each other: msgpack of tagged structs, two frames a message.

    frame 1   ``hangdoctor/1``: the protocol and its version, readable without decoding the rest
    frame 2   one message, at most `MAX_SMALL` bytes; a capture at most `MAX_CAPTURE`

Nothing in a message makes an agent run a command: it can be asked for a capture and for another report interval.
Names in messages are data; whoever makes a path of one goes through `bundle.safe_name`.
"""

from __future__ import annotations

import zlib
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, structs

from .errors import OtherProtocol, WireError
from .model import NodeCapture
from .operations import RankOps

PROTOCOL = b"hangdoctor/1"
MAX_SMALL = 256 << 10
MAX_CAPTURE = 32 << 20  # compressed, from one node
MAX_INFLATED = 256 << 20
MAX_RANKS = 10_000_000
MAX_MEMBERS = 2_000_000  # of one group

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z", max_length=80)]
Words = Annotated[str, Meta(max_length=400)]
Number = Annotated[int, Meta(ge=0, le=1 << 62)]
RankNumber = Annotated[int, Meta(ge=0, lt=MAX_RANKS)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]


class RankNow(Struct, omit_defaults=True):
    """Where one rank is, as its agent sees it."""

    rank: RankNumber
    pid: Number = 0
    idle_s: Seconds = 0.0  # since its last progress, by its own node's clock
    iteration: Annotated[int, Meta(ge=-1, le=1 << 62)] = -1
    phase: Words = ""
    op: Words = ""  # the operation that it is in, or was in last
    seq: Number = 0
    inside: bool = False
    busy: bool = False  # works outside any operation: processor time or I/O grows
    box: bool = False
    over: bool = False  # left its training, or its process is gone
    finished: bool = False  # ... in good order
    held: Annotated[str, Meta(max_length=1)] = ""  # T or t: its process is stopped, D: in uninterruptible I/O (/proc/PID/stat)


# --------------------------------------------------------------------------- from an agent


class Hello(Struct, tag=True, omit_defaults=True):
    """First message of an agent, and the answer to `WhoAreYou`."""

    agent: Name  # random, new with every start of an agent
    node: Name
    job: Words = ""
    world_size: Number = 0
    version: Words = ""


class Report(Struct, tag=True, omit_defaults=True):
    """What changed on a node. `seq` counts this agent's reports from 1; `oldest` is the first that it still keeps."""

    seq: Number
    oldest: Number
    at: float  # wall clock of the node, for people only
    ranks: Annotated[list[RankNow], Meta(max_length=4096)] = []
    late_s: Seconds = 0.0  # how long it lay on the node before it was sent


class Captured(Struct, tag=True, omit_defaults=True):
    """The answer to `Capture`: a `NodeCapture` packed by `pack_capture`, or why there is none."""

    id: Name
    body: Annotated[bytes, Meta(max_length=MAX_CAPTURE)] = b""
    error: Words = ""
    no_ranks: bool = False  # the node runs no rank of the job any more


class Declined(Struct, tag=True):
    """No to a `Capture`: another one is under way."""

    id: Name
    why: Words


class Bye(Struct, tag=True, omit_defaults=True):
    why: Words = ""


# --------------------------------------------------------------------------- from the collector


class Welcome(Struct, tag=True):
    """Go on: reports up to `acked` are kept."""

    acked: Number
    interval_s: Seconds = 1.0


class Ack(Struct, tag=True):
    acked: Number


class Capture(Struct, tag=True, omit_defaults=True):
    id: Name
    settle_s: Seconds = 1.0
    timeout_s: Seconds = 6.0
    keep_ops: Number = 80


class Level(Struct, tag=True):
    """Report every so many seconds."""

    interval_s: Annotated[float, Meta(ge=0.1, le=600)]


class WhoAreYou(Struct, tag=True):
    """The collector does not know this peer (it was restarted): say hello and go on."""


class Rejected(Struct, tag=True):
    """The collector does not deal with this agent, and why."""

    why: Words


FromAgent = Hello | Report | Captured | Declined | Bye
FromCollector = Welcome | Ack | Capture | Level | WhoAreYou | Rejected

_encoder = msgspec.msgpack.Encoder()
_from_agent: msgspec.msgpack.Decoder[FromAgent] = msgspec.msgpack.Decoder(FromAgent)
_from_collector: msgspec.msgpack.Decoder[FromCollector] = msgspec.msgpack.Decoder(FromCollector)


def encode(message: FromAgent | FromCollector) -> list[bytes]:
    return [PROTOCOL, _encoder.encode(message)]


def _body(frames: list[bytes], limit: int) -> bytes:
    if len(frames) != 2:
        raise WireError(f"a message of {len(frames)} frames instead of 2")
    if frames[0] != PROTOCOL:
        theirs = frames[0][:40].decode("ascii", "replace")
        if not frames[0].startswith(b"hangdoctor/"):
            raise WireError("not a message of hangdoctor")
        raise OtherProtocol(f"the other side speaks {theirs}, this one {PROTOCOL.decode()}")
    if len(frames[1]) > limit:
        raise WireError(f"a message of {len(frames[1])} bytes; {limit} are allowed")
    return frames[1]


def from_agent(frames: list[bytes]) -> FromAgent:
    """Decode what an agent sent.

    Raises:
        OtherProtocol: it speaks another version.
        WireError: it is no message, too large, or has fields out of range.
    """
    body = _body(frames, MAX_CAPTURE + MAX_SMALL)
    try:
        message = _from_agent.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise WireError(f"no message: {str(error)[:120]}") from error
    if not isinstance(message, Captured) and len(body) > MAX_SMALL:
        raise WireError(f"a message of {len(body)} bytes; {MAX_SMALL} are allowed")
    return message


def from_collector(frames: list[bytes]) -> FromCollector:
    """Decode what the collector sent.

    Raises:
        OtherProtocol, WireError: as `from_agent`.
    """
    try:
        return _from_collector.decode(_body(frames, MAX_SMALL))
    except (msgspec.DecodeError, RecursionError) as error:
        raise WireError(f"no message: {str(error)[:120]}") from error


Runs = list[tuple[int, int, int]]  # first, step, count


class _Packed(Struct, omit_defaults=True):
    """A capture on its way: the members of each group once a node, as runs, or the largest group would be most of it."""

    capture: NodeCapture
    members: dict[str, Runs] = {}
    times: dict[int, list[int]] = {}  # place of a rank -> of each operation: microseconds since the one before, and until left


def pack_capture(capture: NodeCapture) -> bytes:
    """Compressed: ranks of one node have nearly the same stacks, so that eight cost little more than one."""
    members: dict[str, Runs] = {}
    times: dict[int, list[int]] = {}
    ranks = []
    for i, rank in enumerate(capture.ranks):
        ops, before = (_without_members(o, members) for o in (rank.ops, rank.ops_before))
        if ops is not None and ops.operations:
            times[i] = _take_times(ops)
        ranks.append(structs.replace(rank, ops=ops, ops_before=before))
    return zlib.compress(_encoder.encode(_Packed(structs.replace(capture, ranks=ranks), members, times)), 6)


def _take_times(ops: RankOps) -> list[int]:
    """Times out of the operations, as small differences: as floating-point numbers they would be most of the bytes."""
    times, before, plain = [], 0, []
    for op in ops.operations:
        entered, left = round(op.entered_s * 1e6), round(op.left_s * 1e6)
        times += [entered - before, left - entered + 1 if op.left_s else 0]
        before = entered
        plain.append(structs.replace(op, entered_s=0.0, left_s=0.0))
    ops.operations = plain
    return times


def _put_times(ops: RankOps, times: list[int]) -> None:
    entered = 0
    for op, since, until in zip(ops.operations, times[::2], times[1::2], strict=False):
        entered += since
        op.entered_s, op.left_s = entered / 1e6, (entered + until - 1) / 1e6 if until else 0.0


def _without_members(ops: RankOps | None, members: dict[str, Runs]) -> RankOps | None:
    if ops is None:
        return None
    for group in ops.groups:
        if group.ranks and group.uid not in members:
            members[group.uid] = to_runs(group.ranks)
    return structs.replace(ops, groups=[structs.replace(g, ranks=[]) for g in ops.groups])


def to_runs(ranks: list[int]) -> Runs:
    """``[0, 1, 2, 8, 12, 16]`` -> ``[(0, 1, 3), (8, 4, 3)]``."""
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


def from_runs(runs: Runs) -> list[int]:
    """Back again.

    Raises:
        WireError: more members than a job can have ranks.
    """
    if sum(max(0, count) for _, _, count in runs) > MAX_MEMBERS:
        raise WireError("a group with more members than a job has ranks")
    return [first + step * i for first, step, count in runs for i in range(count)]


def unpack_capture(body: bytes, known: set[str] | None = None) -> NodeCapture:
    """The capture in a `Captured`. Of groups in `known` the members are left out, the others are added to it: whoever
    joins the captures of many nodes needs each group once.

    Raises:
        WireError: it is damaged, or larger than `MAX_INFLATED` when unpacked.
    """
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, MAX_INFLATED)
        if inflater.unconsumed_tail or not inflater.eof:
            raise WireError("a capture that is cut off or too large")
        packed = msgspec.msgpack.decode(data, type=_Packed)
    except (zlib.error, msgspec.DecodeError, RecursionError) as error:
        raise WireError(f"a damaged capture: {str(error)[:120]}") from error
    known = set() if known is None else known
    for i, rank in enumerate(packed.capture.ranks):
        if rank.ops is not None:
            _put_times(rank.ops, packed.times.get(i, []))
        for ops in (rank.ops, rank.ops_before):
            for group in ops.groups if ops else []:
                if group.uid not in known and group.uid in packed.members and ops is rank.ops:
                    group.ranks = from_runs(packed.members[group.uid])
                    known.add(group.uid)
    return packed.capture
