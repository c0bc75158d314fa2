"""Operations as evidence: what one rank did with its process groups, from whatever recorded it.

The black box (`hangdoctor.readers.blackbox`) and PyTorch's Flight Recorder
(`hangdoctor.readers.flight_recorder`) both end here, so that the diagnosis knows one form only.
A group is known by its member set: ids and names that a process gave it are never compared
between processes, and sequence numbers count the collectives of one member set.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from ..text.group_words import WHOLE_JOB as WHOLE_JOB
from .group_id import group_uid as group_uid
from .layout import Layout

OpState = Literal["entered", "started", "done"]

# Point-to-point operations are matched by (source, destination, tag-free order), not by a group's
# sequence number.
P2P = frozenset({"send", "recv"})
# Operations of the store or of set-up and tear-down: waits, but no collectives of a group's
# sequence.
STORE = frozenset(
    {"store_wait", "init_process_group", "new_group", "destroy_process_group", "monitored_barrier"}
)


_UNKNOWN_GROUP = "?"


def unknown_group(rank: int, pid: int) -> str:
    """A stand-in for the uid of a group that a rank's record does not name: equal to that of no
    other rank.
    """
    return f"{_UNKNOWN_GROUP}{rank}" if rank >= 0 else f"{_UNKNOWN_GROUP}pid{pid}"


def is_unknown(uid: str) -> bool:
    """Whether a uid stands for a group that nothing names."""
    return uid.startswith(_UNKNOWN_GROUP)


_WORLD_NAMES = ("default_pg", "world", "default")


def spoken(name: str) -> str:
    """The name of a group as people read it: the one of all ranks is ``the whole job`` everywhere."""
    return WHOLE_JOB if name.lower().removesuffix("_group") in _WORLD_NAMES else name


class Group(Struct, omit_defaults=True):
    """A process group. `ranks` are global ranks, empty if unknown."""

    uid: str
    ranks: list[int] = []
    name: str = ""  # what the job calls it (tp, dp, pp, default_pg ...), for people


class Operation(Struct, omit_defaults=True, gc=False):
    """One operation of one rank.

    Signature fields are empty where the recorder did not keep them.
    """

    group: str  # Group.uid
    seq: (
        int  # per group for collectives (1, 2, ...), per (group, peer, direction) for send and recv
    )
    op: str  # torch.distributed's public name: all_reduce, broadcast, send ...
    state: OpState = "entered"
    reduce_op: str = ""
    root: int = -1  # global rank of source or destination, -1 without one
    peer: int = -1  # global rank of the other side of a send or recv
    shapes: str = ""  # "[4, 8],[2]" of the inputs
    dtype: str = ""
    site: str = ""  # the call: "function (file:line)"
    thread: int = 0
    entered_s: float = 0.0  # the rank's own wall clock
    left_s: float = 0.0
    asynchronous: bool = False
    waited: bool = False  # a thread of the rank waits for its handle now
    iteration: int = -1
    failed: bool = (
        False  # left by an exception: the operation did not take place, or not to its end
    )
    # Of a store wait: its keys; of new_group: the members asked for; of a send or recv: "tag 7".
    detail: str = ""

    def signature(self) -> tuple[str, str, str, str, int]:
        """What all members of one collective must agree on."""
        return (self.op, self.shapes, self.dtype, self.reduce_op, self.root)


class Mark(Struct, omit_defaults=True):
    """What the job said of itself at one moment: a phase, an iteration or a micro-batch begins."""

    kind: Literal["phase", "iteration", "micro_batch"]
    at_s: float  # the rank's own wall clock
    number: int = -1  # of the iteration or micro-batch
    text: str = ""  # of the phase; "" where one ends and none follows


class Records(Sequence[Operation]):
    """Operations that are unpacked when they are looked at, except those that every pass needs."""

    @abstractmethod
    def unfinished(self) -> list[Operation]:
        """Those that have not ended, oldest first."""

    @abstractmethod
    def newest(self) -> Operation | None:
        """The last one of the training's own threads."""

    @abstractmethod
    def groups(self) -> set[str]:
        """Uids of their groups."""


class RankOps(Struct, omit_defaults=True):
    """The operations of one rank, oldest first; a ring, so the oldest may be gone."""

    rank: int
    world_size: int = 0
    source: Literal["blackbox", "flight_recorder", "nccl", "simulated"] = "blackbox"
    groups: list[Group] = []
    operations: Sequence[Operation] = []
    overwritten: bool = False  # older operations than these existed
    iteration: int = -1
    steps: int = 0  # that the job's optimizers have made
    phase: str = ""
    heartbeat_s: float = 0.0  # wall clock of the last sign of life
    got_on_s: float = 0.0  # when its heartbeat last saw progress, that of C++ too; 0 if unknown
    finished: bool = False  # left its training cleanly
    # NCCL enqueues and returns: what a rank has entered it may not have reached on its device.
    runs_ahead: bool = False
    sees_starts: bool = False  # what its device has begun is "started", by NCCL's own events
    notes: list[str] = []
    layout: Layout | None = None  # as the job itself has said it
    marks: list[Mark] = []  # oldest first, as far back as the operations
    clock: str = ""  # which clock the times are of: host and boot; "" if unknown
    # The recorder was asked for what has not completed alone: of the rest only these last numbers
    # are known, by group. What is pending is there as a whole.
    only_active: bool = False
    completed: dict[str, int] = {}
    # Of such operations, and of all where sends or recvs are recorded: the place in all that the process
    # has recorded, and the number by its own count (the recorder's own of sends and recvs). Equal on
    # ranks that run the same program.
    places: list[tuple[int, int]] = []
    # uids of groups of which only those are known that have used them: there may be more members.
    unsure: list[str] = []
    side: list[int] = []  # threads that are not the training: they only poll beside it
    # Of a job that is over: it went on in the moment in which another's wait reached its limit, so it
    # had waited for what that one held.
    freed: bool = False

    def unfinished(self) -> list[Operation]:
        """The operations that have not ended."""
        if isinstance(self.operations, Records):
            return self.operations.unfinished()
        return [o for o in self.operations if o.state != "done"]

    def unfinished_in_training(self) -> list[Operation]:
        """Those of the training's own threads."""
        return [o for o in self.unfinished() if o.thread not in self.side]

    def newest_in_training(self) -> Operation | None:
        """The last operation of the training's own threads."""
        if isinstance(self.operations, Records):
            return self.operations.newest()
        return next((o for o in reversed(self.operations) if o.thread not in self.side), None)

    def has_communicated(self) -> bool:
        """Whether an operation beyond the store and set-up has come to its end."""
        done = (o.op for o in self.operations if o.state == "done")
        return self.overwritten or any(op not in STORE for op in done)

    def groups_in_use(self) -> set[str]:
        """Uids of the groups of its operations."""
        if isinstance(self.operations, Records):
            return self.operations.groups()
        return {o.group for o in self.operations}

    def newest(self, keep: int) -> list[Operation]:
        """The newest of the training and of other threads, `keep` of each, and all unfinished."""
        side = set(self.side)
        left = {True: keep, False: keep}
        kept = []
        for operation in reversed(self.operations):
            apart = operation.thread in side
            left[apart] -= 1
            if left[apart] >= 0 or operation.state != "done":
                kept.append(operation)
        return kept[::-1]
