"""What the collector's core keeps of each node, and the instructions that it gives."""

from __future__ import annotations

from msgspec import Struct

from ..model.capture import JobCapture
from ..transport.messages import FromCollector
from .capture_reason import CaptureReason


class Settings(Struct, frozen=True):
    """What a collector allows and waits for."""

    interval_s: float = 1.0  # between two reports of an agent
    settle_s: float = 1.0  # between the two samples of a capture
    capture_s: float = 6.0  # what an agent gets for its capture
    patience_s: float = 2.0  # beyond that, for the way
    silent_s: float = 5.0  # not heard for this long: silent
    linger_s: float = 0.0  # the agents stay for this long after the last rank; 0: unknown
    keep_ops: int = 80  # of a rank in a capture
    keep_all_ops: int = 400_000  # of all ranks together: a large job sends fewer of each
    strikes: int = 10  # bad messages before a peer is cut off
    rate: float = 200.0  # messages a second that one peer may send for long
    burst: float = 2000.0
    max_nodes: int = 16_384
    max_peers: int = 40_000
    # Nodes that the launcher started agents on; empty: unknown.
    expected: frozenset[str] = frozenset()


class Counters(Struct):
    """What the collector refused or lost, for people and for `collect`'s last line."""

    malformed: int = 0
    other_protocol: int = 0
    unknown: int = 0
    flooded: int = 0
    cut_off: int = 0
    reports: int = 0
    incidents: int = 0
    false_alarms: int = 0
    messages: int = 0
    bytes: int = 0
    events: int = 0  # of the training, that were kept
    dropped: int = 0  # captures on evidence that came to nothing


_COUNTED = {
    "incidents": ("incident", "incidents"),
    "false_alarms": ("false alarm", "false alarms"),
    "events": ("event of the training", "events of the training"),
    "reports": ("report", "reports"),
    "malformed": ("malformed message", "malformed messages"),
    "other_protocol": (
        "message of another protocol version",
        "messages of another protocol version",
    ),
    "unknown": ("message of an unknown peer", "messages of unknown peers"),
    "flooded": ("message above the limit", "messages above the limit"),
    "cut_off": ("peer cut off", "peers cut off"),
}


def farewell(counters: Counters, keys_refused: int) -> str:
    """What a collector has to say at its end: all that is not zero."""
    counts = [(getattr(counters, name), *words) for name, words in _COUNTED.items()]
    counts.append((keys_refused, "unknown key refused", "unknown keys refused"))
    told = []
    for number, one, many in counts:
        if number:
            told.append(f"{number} {one if number == 1 else many}")
    return f"stopped: {', '.join(told)}" if told else "stopped; no agent has reported"


class Position(Struct):
    """How far the reports of one agent are kept; survives a restart of the collector."""

    node: str = ""
    seq: int = 0
    received: int = 0
    lost: int = 0  # dropped on the node because its spool was full
    doubled: int = 0  # came again and were not counted again


class Node(Struct):
    """One node: its agent of now, and what it said last."""

    name: str
    peer: bytes
    agent: str
    heard: float
    job: str = ""
    world_size: int = 0
    ranks: dict[int, bool] = {}  # rank -> its process is over
    left: bool = False
    via: str = ""  # the collector of the tree that it is behind
    waits_s: float = 0.0  # torchrun waits there for other nodes, without a rank
    began: float = 0.0  # when its run of the job began, by its own clock; 0 unknown

    def speaks(self, now: float, silent_s: float) -> bool:
        """Whether its agent is there and was heard within `silent_s`."""
        return not self.left and now - self.heard < silent_s


class Send(Struct, frozen=True):
    """Send this to one peer; what it does not take is lost, and it will ask again."""

    peer: bytes
    message: FromCollector


class Log(Struct, frozen=True):
    """A line for people."""

    text: str


class Remember(Struct, frozen=True):
    """Keep positions, rhythm and events of the training as they are now, then send these: what
    cannot be kept is not acknowledged, and is said again.
    """

    acks: list[Send]


class Conclude(Struct, frozen=True):
    """Diagnose this capture and keep it; then call `concluded`."""

    id: str
    capture: JobCapture
    reason: CaptureReason
    early: bool = False  # on evidence: whatever is not a hang is not kept


Instruction = Send | Log | Remember | Conclude
