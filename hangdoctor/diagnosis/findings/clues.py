"""What shows it: evidence, and why alternatives were not taken."""

from __future__ import annotations

from enum import Enum, auto

from msgspec import Struct

from ...model.capture import Frame
from ...model.diagnosis import Kind, Source
from ...model.gpu import Gpu
from .holdings import BehindThread, ChildStopped
from .lock_stories import ForkedLock
from .log_stories import HeartbeatStopped, LogAgrees, LogContradicts, Quote
from .named import Doing, End, Op
from .ras_stories import ErrorByRas, FewerByRas, LostByRas, LostProcesses
from .slow_stories import SlowByArrival, SlowByPace, SlowByWaiting
from .start_stories import AgentWaits, AskedFor
from .stories import AsksFor, HoldsGil, PartApart
from .unnamed_stories import UnnamedAt


class At(Struct, frozen=True):
    """The innermost frames, innermost first; `own`: the user's, where it is further out."""

    frames: tuple[Frame, ...]
    code: str = ""
    own: Frame | None = None


class NoStack(Struct, frozen=True):
    """The stack could not be read."""

    why: str = ""


class CannotRun(Struct, frozen=True):
    """Where it is, which says nothing while it cannot run."""

    frame: Frame


class ThreadState(Struct, frozen=True):
    """State, motion between the samples, kernel wait and call of its thread."""

    state: str
    motion: str
    wchan: str
    doing: Doing | None


class BytesMoved(Struct, frozen=True):
    """Bytes by read() and write() between the samples, and by connections."""

    read: int = 0
    written: int = 0
    received: int = 0


class StoppedState(Struct, frozen=True):
    """The process state that every sample shows."""

    state: str


class IdleState(Struct, frozen=True):
    """State D and no CPU time."""

    call: str
    wchan: str


class Ended(Struct, frozen=True):
    """No living process."""

    end: End


class InOp(Struct, frozen=True):
    """In an operation; `everyone`: as all members are that were seen."""

    op: Op
    everyone: bool = False


class InStore(Struct, frozen=True):
    """Of all ranks of the job, `ranks` have a connection to the store at `where`."""

    where: str
    ranks: tuple[int, ...]
    world: int


class WaitsIn(Struct, frozen=True):
    """Ranks that wait in communications; of these, `still` did not run once. `share`: of their samples,
    in collectives.
    """

    still: tuple[int, ...] = ()
    all_still: bool = False  # that is all of them
    share: float = 1.0


class PrintedAtLimit(Struct, frozen=True):
    """Stacks that faulthandler, or a guard of the program's own, printed when nothing got on."""


class RaisedAtTheEnd(Struct, frozen=True):
    """An exception at the line where the rank had been for that long, raised when all processes ended."""

    said: str
    stood_s: float


class SeenByHeartbeat(Struct, frozen=True):
    """Stacks that the probe's heartbeat wrote into the black boxes, the last ones."""


class NoInterpreter(Struct, frozen=True):
    """No Python interpreter is in its process; `shut_down`: modules show that one was there."""

    shut_down: bool


class DidNotRun(Struct, frozen=True):
    """No thread ran between the samples."""


class IsPast(Struct, frozen=True):
    """At this frame, past the operation that others are in."""

    frame: Frame


class LastOp(Struct, frozen=True):
    """The last operation of its records; None where they hold none."""

    op: Op | None
    done: bool = False


class HasGil(Struct, frozen=True):
    """It holds the GIL at that moment."""


class ChildDied(Struct, frozen=True):
    """A child is dead."""

    pid: int
    end: End | None


class ChildAt(Struct, frozen=True):
    """Where a child is, its innermost frames first."""

    pid: int
    state: str
    frames: tuple[Frame, ...]


class Threads(Struct, frozen=True):
    """The other Python threads of the process, by name."""

    threads: tuple[tuple[str, Frame], ...]


class LockWait(Struct, frozen=True):
    """Waits for the lock on a file, which process `pid` holds by /proc/locks."""

    path: str
    pid: int


class Silence(Struct, frozen=True):
    """Why nothing is known."""

    whys: tuple[str, ...]


class WaitsFor(Struct, frozen=True):
    """Waits in an operation for a rank."""

    op: Op
    whom: int


class Unreturned(Struct, frozen=True):
    """A transfer whose peer exchanges with other ranks there, to and from which it sends and receives."""

    op: Op
    peer: int
    sends_to: tuple[int, ...]
    receives_from: tuple[int, ...]


class PartedAt(Struct, frozen=True):
    """Record number, and what both did there."""

    position: int
    mine: Op | None
    theirs: Op | None
    reference: int
    own: bool


class Signed(Struct, frozen=True):
    """What a member called: its values, and the line."""

    values: tuple[str, ...]
    site: str


class SameSignature(Struct, frozen=True):
    """All have entered the operation with one signature."""

    op: Op


class EndedCleanly(Struct, frozen=True):
    """Ended without an error."""


class RasSays(Struct, frozen=True):
    """What NCCL RAS reported."""

    story: LostByRas | LostProcesses | FewerByRas | ErrorByRas


class RasSeesAll(Struct, frozen=True):
    """NCCL RAS reaches all processes, with equal counts."""

    number: int  # of ranks


class GpuState(Struct, frozen=True):
    """What the driver says of its GPU."""

    gpu: Gpu


class GpuStandsOut(Struct, frozen=True):
    """Its GPU is busy or idle, and all others are the contrary; figures in per cent."""

    busy: int
    least: int
    most: int
    others: int  # ranks


class WaitedShare(Struct, frozen=True):
    """Per cent of the time spent waiting."""

    least: float
    most: float


class Pace(Struct, frozen=True):
    """The measure of a straggler."""

    story: SlowByWaiting | SlowByPace | SlowByArrival


class WaitsInKey(Struct, frozen=True):
    """Waits for keys of the store."""

    keys: str


class Quoted(Struct, frozen=True):
    """A sentence that another part of the report made, such as where two call histories part."""

    text: str


Fact = (
    At
    | NoStack
    | CannotRun
    | ThreadState
    | BytesMoved
    | StoppedState
    | IdleState
    | Ended
    | InOp
    | InStore
    | WaitsIn
    | DidNotRun
    | PrintedAtLimit
    | RaisedAtTheEnd
    | SeenByHeartbeat
    | IsPast
    | LastOp
    | HasGil
    | NoInterpreter
    | ChildDied
    | ChildAt
    | Threads
    | LockWait
    | Silence
    | WaitsFor
    | PartedAt
    | Unreturned
    | Signed
    | SameSignature
    | PartApart
    | AsksFor
    | EndedCleanly
    | RasSays
    | RasSeesAll
    | GpuState
    | GpuStandsOut
    | WaitedShare
    | Pace
    | WaitsInKey
    | Quoted
    | Quote
    | LogAgrees
    | LogContradicts
    | HeartbeatStopped
    | HoldsGil
    | BehindThread
    | ForkedLock
    | ChildStopped
    | AgentWaits
    | AskedFor
    | UnnamedAt
)


class Clue(Struct, frozen=True):
    """One piece of evidence."""

    source: Source
    ranks: tuple[int, ...]
    fact: Fact


class Why(Enum):
    """Why an alternative was not taken, or is not excluded."""

    NOT_ALL_IN = auto()
    CANNOT_RUN = auto()
    ALL_JOINED = auto()
    CULPRIT_IS_OUTSIDE = auto()
    EXPLAINED_WITHOUT_THEM = auto()
    MAY_HAVE_SKIPPED = auto()
    NOT_COUNTED = auto()
    PASSED = auto()
    NOT_ONE_OPERATION = auto()
    NOT_HALVES = auto()
    CALLED_IN_ORDER = auto()
    NOT_SEEN_IN_IT = auto()
    LAUNCHED_UNEQUALLY = auto()
    NETWORK_SLOWS_ALL = auto()
    UNKNOWN_BUT_OTHERS_MISSING = auto()
    MAY_BE_SLOW = auto()
    UNRECORDED_GRADIENTS = auto()
    UNRECORDED_TRANSFER = auto()
    TRANSFER_NOT_IN_DUMPS = auto()
    KEY_IS_NO_COLLECTIVE = auto()
    AGREE_MAJORITY = auto()
    PARTS_AGREE = auto()
    AGREE_ROLE = auto()
    AGREE_PRECEDENT = auto()
    AGREE_USUAL = auto()
    AGREE_UNDECIDED = auto()
    ALL_ENTERED = auto()
    NOT_ANSWERING = auto()
    ENQUEUED = auto()
    SAME_AS_ROUNDS_BEFORE = auto()
    SAME_AS_ROLE = auto()
    SAME_AS_LINE = auto()
    LOG_IS_SURER = auto()


class Against(Struct, frozen=True):
    """An alternative with the reason against it."""

    kind: Kind
    ranks: tuple[int, ...]
    why: Why
