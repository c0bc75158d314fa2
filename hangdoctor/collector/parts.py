"""What the collector's core keeps of each node, and the instructions that it gives."""

from __future__ import annotations

from msgspec import Struct

from ..messages import FromCollector
from ..model import JobCapture
from ..watchdog import Learned


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


class Send(Struct, frozen=True):
    peer: bytes
    message: FromCollector


class Log(Struct, frozen=True):
    text: str


class Remember(Struct, frozen=True):
    """Keep these before the acknowledgements behind it go out."""

    positions: dict[str, Position]
    learned: Learned


class Conclude(Struct, frozen=True):
    """Diagnose this capture and keep it; then call `concluded`."""

    id: str
    capture: JobCapture
    reason: str


Instruction = Send | Log | Remember | Conclude
