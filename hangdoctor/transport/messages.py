"""What node agents and the collector say to each other: msgpack of tagged structs, two frames a message.

    frame 1   ``hangdoctor/1``: the protocol and its version, readable without decoding the rest
    frame 2   one message, at most `MAX_SMALL` bytes; a capture at most `MAX_CAPTURE`

Nothing in a message makes an agent run a command or choose a path: it can be asked for a capture, for another report
interval and for call traces, and told that it is no longer needed. Names in messages are data; whoever makes a path of one
goes through `bundle.safe_name`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from ..errors import OtherProtocol, WireError
from ..probe.calls.request import Request, checked
from ..text.ranges import MAX_RANKS

PROTOCOL = b"hangdoctor/1"
MAX_SMALL = 256 << 10
MAX_MERGED = 1 << 20  # of a `Relayed`
MAX_CAPTURE = 32 << 20  # compressed, from one node

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z", max_length=80)]
Words = Annotated[str, Meta(max_length=400)]
MOST = 1 << 62
Number = Annotated[int, Meta(ge=0, le=MOST)]
World = Annotated[int, Meta(ge=0, le=MAX_RANKS)]
RankNumber = Annotated[int, Meta(ge=0, lt=MAX_RANKS)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
LATEST = 1e11
Moment = Annotated[float, Meta(ge=0, le=LATEST)]  # seconds since the epoch
Percent = Annotated[int, Meta(ge=-1, le=100)]
Letter = Annotated[str, Meta(max_length=1)]
Ranks = Annotated[list["RankNow"], Meta(max_length=4096)]
MOST_EVENTS = 128  # in one report of a node
Events = Annotated[list["EventNow"], Meta(max_length=MOST_EVENTS)]


class RankNow(Struct, array_like=True):
    """Where one rank is, as its agent sees it. Fields go by their place: new ones come at the end."""

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
    finished: bool = False  # ... cleanly
    # Of its time since the last look, how much it waited in operations; -1 where it is not known.
    waits: Percent = -1
    # T or t: its process is stopped, D: in uninterruptible I/O (/proc/PID/stat).
    held: Letter = ""
    still: bool = False  # without a box: two stacks 30 s apart are the same
    over_s: Seconds = 0.0  # since its process ended; of a rank that is over
    failed: bool = False  # its process ended by a signal or with an error code


class PastPhase(Struct, array_like=True):
    """The pauses between a rank's steps of progress in one phase, as its box remembers them."""

    name: Words
    pauses: Number
    usual_s: Seconds  # as long as all but a few of them
    longest_s: Seconds


class Past(Struct, array_like=True):
    """The history of a node's ranks, of all the longest.

    Fields go by their place: new ones come at the end.
    """

    steps: Number  # iterations or optimizer steps
    phases: Annotated[list[PastPhase], Meta(max_length=16)] = []


class EventNow(Struct, array_like=True):
    """What the training said of itself, from a rank's black box.

    Rank, `made` and `serial` name it, however often it is reported. Fields go by their place: new
    ones come at the end.
    """

    rank: RankNumber
    made: Number  # when the box was made, ns since the epoch by the rank's clock
    serial: Number
    kind: Words = ""
    text: Words = ""
    iteration: Annotated[int, Meta(ge=-1, le=1 << 62)] = -1
    at: Moment = 0.0  # by the rank's clock, for people only
    age_s: Seconds = 0.0  # by the clock of its node
    pid: Number = 0


# --------------------------------------------------------------------------- from an agent


class Hello(Struct, tag=True, omit_defaults=True):
    """First message of an agent (or of a collector to the one above it), and the answer to `WhoAreYou`."""

    agent: Name  # random, new with every start of an agent
    node: Name
    job: Words = ""
    world_size: World = 0
    version: Words = ""
    relay: bool = False  # a collector that speaks for nodes; `node` is its own name
    began: Moment = 0.0  # wall clock: when this run of the job began on the node; 0 unknown


class Report(Struct, tag=True, omit_defaults=True):
    """What changed on a node. `seq` counts this agent's reports from 1; `oldest` is the first that it still keeps."""

    seq: Number
    oldest: Number
    at: float  # wall clock of the node, for people only
    ranks: Ranks = []
    late_s: Seconds = 0.0  # how long it lay on the node before it was sent
    timeout_s: Seconds = 0.0  # of the ranks' process groups, the shortest; 0 where it is not known
    past: Past | None = None  # once in a conversation
    events: Events = []
    waits_s: Seconds = 0.0  # since when torchrun waits here for other nodes, without a rank


class NodeNews(Struct, omit_defaults=True):
    """One node in a `Relayed`."""

    node: Name
    job: Words = ""
    world_size: World = 0
    silent_s: Seconds = 0.0  # since its agent was heard
    left: bool = False
    ranks: Ranks = []  # what changed, ages as of the sending
    timeout_s: Seconds = 0.0
    past: Past | None = None
    began: Moment = 0.0  # as in `Hello`
    events: Events = []


class Relayed(Struct, tag=True, omit_defaults=True):
    """A report of a collector to the one above it: the changes of all nodes below, merged. Numbered as `Report` is."""

    seq: Number
    oldest: Number
    nodes: Annotated[list[NodeNews], Meta(max_length=8192)] = []
    late_s: Seconds = 0.0


class Captured(Struct, tag=True, omit_defaults=True):
    """The answer to `Capture`: a `NodeCapture` packed by `capture_codec.pack_capture`, or why there is none."""

    id: Name
    body: Annotated[bytes, Meta(max_length=MAX_CAPTURE)] = b""
    error: Words = ""
    no_ranks: bool = False  # the node runs no rank of the job any more
    node: Name | None = None  # passed on by a collector: whose answer it is


class Declined(Struct, tag=True, omit_defaults=True):
    """No to a `Capture`: its time was over before it could begin, or another one took its place."""

    id: Name
    why: Words
    node: Name | None = None


class Bye(Struct, tag=True, omit_defaults=True):
    """The agent ends, and why."""

    why: Words = ""


# --------------------------------------------------------------------------- from the collector


class Welcome(Struct, tag=True):
    """Go on: reports up to `acked` are kept."""

    acked: Number
    interval_s: Seconds = 1.0


class Ack(Struct, tag=True):
    """Reports up to `acked` are kept: the spool may forget them."""

    acked: Number


class Capture(Struct, tag=True, omit_defaults=True):
    """Capture the node now, within `timeout_s`; the two samples are `settle_s` apart.

    Of each rank the last `keep_ops` operations are sent.
    """

    id: Name
    settle_s: Seconds = 1.0
    timeout_s: Seconds = 6.0
    keep_ops: Number = 80


class Level(Struct, tag=True):
    """Report every N seconds."""

    interval_s: Annotated[float, Meta(ge=0.1, le=600)]


class Trace(Struct, tag=True):
    """Switch the tracing of Python calls in ranks: an agent writes it, without more, where its ranks' black boxes are."""

    wanted: Request  # checked when it is decoded


class Dismissed(Struct, tag=True):
    """The collector ends and will not come back: so may the agent."""


class WhoAreYou(Struct, tag=True):
    """The collector does not know this peer (it was restarted): say hello and go on."""


class Rejected(Struct, tag=True):
    """The collector does not deal with this agent, and why."""

    why: Words


FromAgent = Hello | Report | Relayed | Captured | Declined | Bye
FromCollector = Welcome | Ack | Capture | Level | Trace | Dismissed | WhoAreYou | Rejected

# msgspec's own errors; text that is not UTF-8 (a UnicodeDecodeError); nesting without end.
_NO_MESSAGE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_encoder = msgspec.msgpack.Encoder()
_from_agent: msgspec.msgpack.Decoder[FromAgent] = msgspec.msgpack.Decoder(FromAgent)
_from_collector: msgspec.msgpack.Decoder[FromCollector] = msgspec.msgpack.Decoder(FromCollector)


def encode(message: FromAgent | FromCollector) -> list[bytes]:
    """The two frames of a message."""
    return [PROTOCOL, _encoder.encode(message)]


def _body(frames: list[bytes], limit: int) -> bytes:
    if len(frames) != 2:
        raise WireError(f"a message with {len(frames)} frames instead of 2")
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
        WireError: it is not a message, too large, or has fields out of range.
    """
    body = _body(frames, MAX_CAPTURE + MAX_SMALL)
    try:
        message = _from_agent.decode(body)
    except _NO_MESSAGE as error:
        raise WireError(f"no message: {str(error)[:120]}") from error
    limit = _limit_of(message)
    if len(body) > limit:
        raise WireError(f"a message of {len(body)} bytes; {limit} are allowed")
    return message


def _limit_of(message: FromAgent) -> int:
    """Bytes that a message of its kind may have."""
    if isinstance(message, Captured):
        return MAX_CAPTURE + MAX_SMALL
    return MAX_MERGED if isinstance(message, Relayed) else MAX_SMALL


def from_collector(frames: list[bytes]) -> FromCollector:
    """Decode what the collector sent.

    Raises:
        OtherProtocol, WireError: as `from_agent`.
    """
    try:
        message = _from_collector.decode(_body(frames, MAX_SMALL))
        if isinstance(message, Trace):
            checked(message.wanted)
    except (*_NO_MESSAGE, ValueError) as error:
        raise WireError(f"no message: {str(error)[:120]}") from error
    return message
