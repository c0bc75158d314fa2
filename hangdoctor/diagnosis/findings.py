"""What the passes conclude, as typed facts. Words come last: only `wording` turns these into sentences.

A finding says which kind of cause it is, of which ranks, what happened (`story`), where they are instead, who waits for
them since when, and what shows it (`clues`). Passes and fusion compare these facts and never a text.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Literal

from msgspec import Struct, field

from ..model import Frame, Kind, Source, Where

# --------------------------------------------------------------------------- things that findings speak of


class GroupRef(Struct, frozen=True):
    """A process group as a reader knows it."""

    axis: str = ""  # tp, dp, pp, world, or "" where the group is something else
    name: str = ""  # what the program calls it, else ""
    ranks: tuple[int, ...] = ()


class Op(Struct, frozen=True):
    """One operation. Records have a number and a line (`site`), stacks the caller's frame."""

    name: str
    seq: int = -1
    group: GroupRef = GroupRef()
    peer: int | None = None  # of a send or receive; -1 is any rank
    site: str = ""
    frame: Frame | None = None


class Home(Struct, frozen=True):
    """Where a rank runs."""

    rank: int
    node: str = ""
    pid: int = 0
    gpu: str = ""


Act = Literal["sleeping", "locked", "child", "signal", "blocked", "still", "running", "working"]


class Doing(Struct, frozen=True):
    """What a thread does; `call` is the system call that it is blocked in."""

    act: Act
    call: str = ""


class Waiters(Struct, frozen=True):
    """Ranks that wait in one operation; `seconds` is the longest that one of them has, 0 where no clock says.

    `elsewhere` are the ranks that wait in other operations.
    """

    ranks: tuple[int, ...]
    op: Op
    seconds: float = 0.0
    elsewhere: tuple[int, ...] = ()


class End(Struct, frozen=True):
    """How a process ended; `code` None: nothing says how, negative: the signal that killed it."""

    code: int | None = None
    oom_kills: int = 0  # of its cgroup


class Usual(Struct, frozen=True):
    """Of the last `of` waits, `as_long` took as long as this one; of 0: the last two of each rank."""

    as_long: int
    of: int
    settle_s: int  # a pause between the samples after which no doubt is left


# --------------------------------------------------------------------------- what holds a rank


class Debugger(Struct, frozen=True):
    tool: str


class TypedInput(Struct, frozen=True):
    """It reads from its standard input."""


class ChildEnded(Struct, frozen=True):
    pid: int
    end: End


class ChildStopped(Struct, frozen=True):
    pid: int
    tracer: int = 0


class OnChild(Struct, frozen=True):
    """It waits for a living child."""

    pid: int
    command: str
    frame: Frame | None = None
    call: str = ""
    by_subprocess: bool = False


class OnFifo(Struct, frozen=True):
    """It opens a FIFO that has no other end."""


class OnDescriptor(Struct, frozen=True):
    """It is blocked in a system call on what a descriptor leads to."""

    call: str
    number: str
    path: str
    writes: bool
    locks: bool


class OnLock(Struct, frozen=True):
    """It waits for a lock, and these other threads of its process could hold it."""

    threads: tuple[tuple[str, Frame], ...] = ()


Holding = (
    Debugger | TypedInput | ChildEnded | ChildStopped | OnChild | OnFifo | OnDescriptor | OnLock
)


# --------------------------------------------------------------------------- stories: what happened


class NeverReached(Struct, frozen=True):
    """Alive and not in the operation `op` that others wait in; None where no rank waits."""

    op: Op | None


class NeverPosted(Struct, frozen=True):
    """The other half of the transfer that `by` waits in."""

    op: Op
    by: int


class NeverStarted(Struct, frozen=True):
    """Enqueued by the host, never started by the device."""

    op: Op


class NotJoined(Struct, frozen=True):
    """Has not come to set-up or to teardown; `why` where no process was seen."""

    op: Op
    why: str = ""


class Died(Struct, frozen=True):
    end: End


class Stopped(Struct, frozen=True):
    how: Literal["signal", "debugger", "freezer"]
    tracer: int = 0


class InputOutput(Struct, frozen=True):
    call: str
    wchan: str


class HoldsGil(Struct, frozen=True):
    tid: int
    frame: Frame | None


class ForkedLock(Struct, frozen=True):
    """A child forked while another thread held a lock."""

    child: int
    frame: Frame


class AllIn(Struct, frozen=True):
    """Every member entered `op` and it does not finish; `everyone`: the members are the whole job, or two sides."""

    op: Op
    members: tuple[int, ...]
    counted: bool  # operations were counted; else one may have made a call more or less
    sides: bool = False


class HeldBehind(Struct, frozen=True):
    """Stuck in an operation that is earlier in the program than where the ranks `past` are."""

    op: Op
    past: tuple[int, ...]


class NoneLeaves(Struct, frozen=True):
    """All ranks are in set-up or teardown, and it does not finish."""

    op: Op
    starting: bool


class StillIn(Struct, frozen=True):
    """Still at `op` ("" for code) while ranks have `ended` and others are in `leaving_op`; `left`: the other way round."""

    op: Op
    ended: tuple[int, ...] = ()
    leaving: tuple[int, ...] = ()
    leaving_op: Op | None = None
    left: bool = False


class LeftWithout(Struct, frozen=True):
    """Ended cleanly and never entered `op`."""

    op: Op


class PeerElsewhere(Struct, frozen=True):
    """`waiter` is in a transfer with the rank, which is in `own`."""

    waiter: int
    op: Op
    own: Op


class Apart(Enum):
    """How ranks were told from the others by their stacks alone."""

    BEHIND = auto()
    AHEAD = auto()
    SMALLER_SIDE = auto()
    NO_ORDER = auto()
    ROOTS = auto()
    OTHER_GROUP = auto()
    OTHER_LINES = auto()
    MOST_HAVE_LEFT = auto()
    PAST = auto()
    RING = auto()
    EITHER = auto()


class InOther(Struct, frozen=True):
    """In `op` while `others` are in `their_op`; `roots`: what root each rank names."""

    how: Apart
    op: Op
    others: tuple[int, ...] = ()
    their_op: Op | None = None
    roots: tuple[tuple[int, int], ...] = ()


class NotSeen(Struct, frozen=True):
    """Ranks that could not be seen, and why; `op` is what the others wait in."""

    whys: tuple[str, ...]
    nodes: tuple[str, ...] = ()


class NoRecords(Struct, frozen=True):
    """The records do not reach back to where their devices are."""


class LostByRas(Struct, frozen=True):
    communicator: str  # "" where its ranks are the job's
    hosts: tuple[str, ...]


class FewerByRas(Struct, frozen=True):
    communicator: str
    op: str
    launched: int


class UnsetKey(Struct, frozen=True):
    keys: str


class Ground(Enum):
    """How the ranks that disagree were told from the others."""

    MAJORITY = auto()
    ROLE = auto()
    PRECEDENT = auto()
    UNDECIDED = auto()


class Disagrees(Struct, frozen=True):
    """Entered `mine` where the other members entered `theirs`; `fields` are those that differ."""

    mine: Op
    theirs: Op | None
    fields: tuple[str, ...]
    my_values: tuple[str, ...]
    their_values: tuple[str, ...]
    ground: Ground


class Diverged(Struct, frozen=True):
    """Made other calls than `reference`, a rank with the same role, or than itself in earlier rounds (how "own")."""

    how: Literal["skipped", "extra", "other", "group", "own"]
    mine: Op | None
    theirs: Op | None
    reference: int
    before_records: bool = False


class Ring(Struct, frozen=True):
    """Ranks that wait for one another."""


class OneOf(Struct, frozen=True):
    """One of these; `unseen` left no dump."""

    unseen: tuple[int, ...]


class SlowByWaiting(Struct, frozen=True):
    own: float  # shares of the time spent waiting
    others: float


class SlowByPace(Struct, frozen=True):
    times: float


class SlowByHistory(Struct, frozen=True):
    """What the collector saw over `seconds`: shares in per cent."""

    seconds: float
    own: float
    least: float
    middle: float
    most: float


Story = (
    NeverReached | NeverPosted | NeverStarted | NotJoined | Died | Stopped | InputOutput | HoldsGil | ForkedLock | AllIn
    | HeldBehind | NoneLeaves | StillIn | LeftWithout | PeerElsewhere | InOther | NotSeen | NoRecords | LostByRas
    | FewerByRas | UnsetKey | Disagrees | Diverged | Ring | OneOf | SlowByWaiting | SlowByPace | SlowByHistory
)  # fmt: skip


# --------------------------------------------------------------------------- clues: what shows it


class At(Struct, frozen=True):
    """The innermost frames, innermost first."""

    frames: tuple[Frame, ...]
    code: str = ""


class NoStack(Struct, frozen=True):
    why: str = ""


class CannotRun(Struct, frozen=True):
    frame: Frame


class ThreadState(Struct, frozen=True):
    state: str
    motion: str
    wchan: str
    doing: Doing | None


class StoppedState(Struct, frozen=True):
    state: str


class IdleState(Struct, frozen=True):
    """State D and no CPU time."""

    call: str
    wchan: str


class Ended(Struct, frozen=True):
    end: End


class InOp(Struct, frozen=True):
    op: Op
    everyone: bool = False


class WaitsIn(Struct, frozen=True):
    """Ranks that wait in communications; of these, `still` did not run once."""

    still: tuple[int, ...] = ()


class DidNotRun(Struct, frozen=True):
    pass


class IsPast(Struct, frozen=True):
    frame: Frame


class LastOp(Struct, frozen=True):
    op: Op | None
    done: bool = False


class HasGil(Struct, frozen=True):
    pass


class ChildDied(Struct, frozen=True):
    pid: int
    end: End | None


class ChildAt(Struct, frozen=True):
    pid: int
    state: str
    frame: Frame | None


class Threads(Struct, frozen=True):
    threads: tuple[tuple[str, Frame], ...]


class Silence(Struct, frozen=True):
    whys: tuple[str, ...]


class WaitsFor(Struct, frozen=True):
    op: Op
    whom: int


class PartedAt(Struct, frozen=True):
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
    op: Op


class EndedCleanly(Struct, frozen=True):
    pass


class OldestUnstarted(Struct, frozen=True):
    pass


class RasSays(Struct, frozen=True):
    story: LostByRas | FewerByRas


class WaitedShare(Struct, frozen=True):
    least: float
    most: float


class Pace(Struct, frozen=True):
    story: SlowByWaiting | SlowByPace


class WaitsInKey(Struct, frozen=True):
    keys: str


class Quoted(Struct, frozen=True):
    """A sentence that another part of the report made, such as where two call histories part."""

    text: str


Fact = (
    At | NoStack | CannotRun | ThreadState | StoppedState | IdleState | Ended | InOp | WaitsIn | DidNotRun | IsPast | LastOp
    | HasGil | ChildDied | ChildAt | Threads | Silence | WaitsFor | PartedAt | Signed | SameSignature | EndedCleanly
    | OldestUnstarted | RasSays | WaitedShare | Pace | WaitsInKey | Quoted | HoldsGil | ForkedLock | ChildStopped
)  # fmt: skip


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
    AGREE_ROLE = auto()
    AGREE_PRECEDENT = auto()
    AGREE_UNDECIDED = auto()
    ALL_ENTERED = auto()
    NOT_ANSWERING = auto()
    ENQUEUED = auto()
    SAME_AS_ROUNDS_BEFORE = auto()
    SAME_AS_ROLE = auto()


class Against(Struct, frozen=True):
    """An alternative with the reason against it."""

    kind: Kind
    ranks: tuple[int, ...]
    why: Why


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

    def add_clues(self, others: list[Clue]) -> None:
        """Take over what is not among its clues yet."""
        self.clues += [c for c in others if all(c.fact != own.fact for own in self.clues)]
