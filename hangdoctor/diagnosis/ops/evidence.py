"""What the operation-level diagnosis reads and what it concludes."""

from __future__ import annotations

from msgspec import Struct

from ...layout import Layout
from ...model import Cause, Status, Wait
from ...operations import RankOps


class OpsEvidence(Struct):
    """The operations of all ranks at two moments, and what other sources know about ranks that cannot tell."""

    ops: dict[int, RankOps]  # the last capture
    earlier: dict[int, RankOps] = {}  # the first capture; empty where there was only one
    world_size: int = 0
    layout: Layout | None = None
    silent: dict[int, str] = {}  # rank -> why nothing is known about it
    dead: dict[int, str] = {}  # rank -> how it ended
    stopped: set[int] = set()
    places: dict[int, str] = {}  # rank -> "function (file:line)", where its stack is
    doing: dict[int, str] = {}  # rank -> what it does there: "sleeping", "blocked in recvfrom"
    outside: dict[int, str] = {}  # rank -> kind of cause that its stack and /proc speak for, when it is in no communication
    moving: set[int] = set()  # ranks that other evidence saw making progress between the captures
    nodes: dict[int, str] = {}  # rank -> its node
    taken_s: float = 0.0  # wall clock of the last capture, 0 where it is not known


class OpsVerdict(Struct):
    """Causes name culprits only; every rank that merely waits is in `waits`."""

    status: Status
    causes: list[Cause] = []
    waits: list[Wait] = []
    notes: list[str] = []
