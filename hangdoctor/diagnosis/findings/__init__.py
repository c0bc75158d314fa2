"""What the passes conclude, as typed facts. Words come last: only `wording` turns these into
sentences.

A finding says which kind of cause it is, of which ranks, what happened (`story`), where they are
instead, who waits for them since when, and what shows it (`clues`). Passes and fusion compare these
facts and never a text.
"""

from __future__ import annotations

from msgspec import Struct, field

from ...model.capture import Frame, Site
from ...model.diagnosis import Kind, Where
from .clues import (
    Against,
    At,
    BytesMoved,
    CannotRun,
    ChildAt,
    ChildDied,
    Clue,
    DidNotRun,
    Ended,
    EndedCleanly,
    Fact,
    GpuStandsOut,
    GpuState,
    HasGil,
    IdleState,
    InOp,
    InStore,
    IsPast,
    LastOp,
    LockWait,
    NoInterpreter,
    NoStack,
    Pace,
    PartedAt,
    PrintedAtLimit,
    Quoted,
    RaisedAtTheEnd,
    RasSays,
    RasSeesAll,
    SameSignature,
    SeenByHeartbeat,
    Signed,
    Silence,
    StoppedState,
    Threads,
    ThreadState,
    Unreturned,
    WaitedShare,
    WaitsFor,
    WaitsIn,
    WaitsInKey,
    Why,
)
from .difference import difference
from .holdings import (
    AtWorker,
    BehindThread,
    ChildEnded,
    ChildStopped,
    Debugger,
    FarSide,
    Holding,
    LostThread,
    OnChild,
    OnDescriptor,
    OnFifo,
    OnLock,
    OnPool,
    OnQueue,
    TypedInput,
)
from .lock_stories import ForkedLock, HoldsLock, LeftLock, LockedBy, LockRing
from .log_stories import Quote, RaisedLater
from .named import Act, Doing, End, EndedMeanwhile, GroupRef, Home, Op, StillAlone, Usual, Waiters
from .ras_stories import ErrorByRas, FewerByRas, LostByRas, LostProcesses, OwnNumbers
from .slow_stories import SlowByArrival, SlowByHistory, SlowByPace, SlowBySamples, SlowByWaiting
from .stack_stories import (
    AmountApart,
    AsksForOther,
    Compiling,
    Interrupted,
    OtherRoot,
    OtherTag,
    OwesAnswer,
    StepsApart,
    TwoThreads,
    UnmatchedPair,
)
from .start_stories import (
    Agent,
    AgentWaits,
    AskedFor,
    NotAtRendezvous,
    NoWayToRendezvous,
    OtherPort,
    SameNodeRank,
)
from .stories import (
    A_KEY,
    AllIn,
    Apart,
    AsksFor,
    DecidedBy,
    Died,
    Disagrees,
    Diverged,
    GpuFailed,
    HeldBehind,
    HoldsGil,
    InOther,
    InputOutput,
    LeftWithout,
    NeverPosted,
    NeverReached,
    NeverStarted,
    NoneLeaves,
    NoProcessThere,
    NotJoined,
    NotSeen,
    NotStarted,
    OneOf,
    OtherPartners,
    OtherRound,
    OtherStore,
    OwnGroup,
    OwnOrder,
    PartApart,
    PartsApart,
    PeerElsewhere,
    Ring,
    ShutDown,
    StillImporting,
    StillIn,
    Stopped,
    StoreRefused,
    Story,
    UnsetKey,
    WaitsForDevice,
)
from .unnamed_stories import EndedItself, Standing, UnnamedAt, UnnamedElsewhere

__all__ = [
    "A_KEY",
    "Act",
    "Against",
    "Agent",
    "AgentWaits",
    "AllIn",
    "AmountApart",
    "Apart",
    "AskedFor",
    "AsksFor",
    "AsksForOther",
    "At",
    "AtWorker",
    "BehindThread",
    "BytesMoved",
    "CannotRun",
    "ChildAt",
    "ChildDied",
    "ChildEnded",
    "ChildStopped",
    "Clue",
    "Compiling",
    "Debugger",
    "DecidedBy",
    "DidNotRun",
    "Died",
    "Disagrees",
    "Diverged",
    "Doing",
    "End",
    "Ended",
    "EndedCleanly",
    "EndedItself",
    "EndedMeanwhile",
    "ErrorByRas",
    "Fact",
    "FarSide",
    "FewerByRas",
    "Finding",
    "ForkedLock",
    "GpuFailed",
    "GpuStandsOut",
    "GpuState",
    "GroupRef",
    "HasGil",
    "HeldBehind",
    "Holding",
    "HoldsGil",
    "HoldsLock",
    "Home",
    "IdleState",
    "InOp",
    "InOther",
    "InStore",
    "InputOutput",
    "Interrupted",
    "IsPast",
    "LastOp",
    "LeftLock",
    "LeftWithout",
    "LockRing",
    "LockWait",
    "LockedBy",
    "LostByRas",
    "LostProcesses",
    "LostThread",
    "NeverPosted",
    "NeverReached",
    "NeverStarted",
    "NoInterpreter",
    "NoProcessThere",
    "NoStack",
    "NoWayToRendezvous",
    "NoneLeaves",
    "NotAtRendezvous",
    "NotJoined",
    "NotSeen",
    "NotStarted",
    "OnChild",
    "OnDescriptor",
    "OnFifo",
    "OnLock",
    "OnPool",
    "OnQueue",
    "OneOf",
    "Op",
    "OtherPartners",
    "OtherPort",
    "OtherRoot",
    "OtherRound",
    "OtherStore",
    "OtherTag",
    "OwesAnswer",
    "OwnGroup",
    "OwnNumbers",
    "OwnOrder",
    "Pace",
    "PartApart",
    "PartedAt",
    "PartsApart",
    "PeerElsewhere",
    "PrintedAtLimit",
    "Quoted",
    "RaisedAtTheEnd",
    "RasSays",
    "RasSeesAll",
    "Ring",
    "SameNodeRank",
    "SameSignature",
    "SeenByHeartbeat",
    "ShutDown",
    "Signed",
    "Silence",
    "SlowByArrival",
    "SlowByHistory",
    "SlowByPace",
    "SlowBySamples",
    "SlowByWaiting",
    "Standing",
    "StepsApart",
    "StillAlone",
    "StillImporting",
    "StillIn",
    "Stopped",
    "StoppedState",
    "StoreRefused",
    "Story",
    "ThreadState",
    "Threads",
    "TwoThreads",
    "TypedInput",
    "UnmatchedPair",
    "UnnamedAt",
    "UnnamedElsewhere",
    "Unreturned",
    "UnsetKey",
    "Usual",
    "WaitedShare",
    "Waiters",
    "WaitsFor",
    "WaitsForDevice",
    "WaitsIn",
    "WaitsInKey",
    "Why",
    "difference",
]


class Finding(Struct):
    """One cause, as facts."""

    kind: Kind
    ranks: list[int]
    story: Story
    confidence: float
    nodes: list[str] = []
    where: Where = field(default_factory=Where)
    frame: Frame | None = None  # where the first of the ranks is
    doing: Doing | None = None
    waiters: Waiters | None = None
    holding: Holding | None = None
    usual: Usual | None = None
    clues: list[Clue] = []
    against: list[Against] = []
    homes: list[Home] = []
    children: bool = False  # its processes were captured too: data-loader workers, helpers
    unrecorded: bool = False  # gradients are reduced where no record is made, and it may wait there
    gradients: bool = False  # DistributedDataParallel's reduction is one of the operations
    boxed: bool = False  # ranks of the job have black boxes
    boxes_unread: bool = False  # they may have them, and there was no time to read them
    uncounted: bool = False  # its ranks wait in JAX, whose calls neither boxes nor recorders count
    native: bool = False  # its stacks are of programs without Python
    over: bool = False  # no rank runs any more
    gloo: bool = False  # the job communicates by gloo alone
    no_recorder: bool = False  # its library has none that could be set next time
    site: Site | None = None  # the commands of its platform
    # The lines at which these ranks and those in another operation are, in the same function.
    parting: tuple[Frame, Frame] | None = None
    printed: Quote | None = None  # its last line in the log
    raised: RaisedLater | None = None  # its own error, after others had waited for it
    amount: AmountApart | None = None  # why it made fewer transfers
    # Its line of a function in which the others are in a loop that it has left.
    left_loop: Frame | None = None
    crashed_in: Frame | None = None  # by a stack of the crash that was given beside the log

    def add_clues(self, others: list[Clue]) -> None:
        """Take over what is not among its clues yet."""
        self.clues += [c for c in others if all(c.fact != own.fact for own in self.clues)]
