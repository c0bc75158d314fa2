"""What happened: one struct for each way to go wrong."""

from __future__ import annotations

from enum import Enum, auto
from typing import Literal

from msgspec import Struct

from ...model.capture import Frame
from .lock_stories import LockStory
from .log_stories import LogStory
from .named import End, Op
from .ras_stories import RasStory
from .slow_stories import SlowStory
from .stack_stories import StackStory
from .start_stories import StartStory
from .unnamed_stories import EndedItself, UnnamedElsewhere


class NeverReached(Struct, frozen=True):
    """Alive and not in the operation `op` that others wait in; None where no rank waits.

    `instead`: the other operation that it is in. `raised`: it had entered `op`, and left it by an
    exception that the program caught.
    """

    op: Op | None
    instead: Op | None = None
    raised: bool = False


class NeverPosted(Struct, frozen=True):
    """The other half of the transfer that `by` waits in."""

    op: Op
    by: int


class NeverStarted(Struct, frozen=True):
    """Enqueued by the host, never started by the device, or never ended while peers have."""

    op: Op
    ended_at: tuple[int, ...] = ()


class NotJoined(Struct, frozen=True):
    """Has not come to set-up or to teardown; `why` where no process was seen; `later`: to the making of
    further groups, after the job's own.
    """

    op: Op
    why: str = ""
    later: bool = False


class OtherStore(Struct, frozen=True):
    """Looks for the store at another address than those that have reached it: `own` and `theirs` as
    address:port; `reached` ranks have.
    """

    own: str
    theirs: str
    reached: int


class StoreRefused(Struct, frozen=True):
    """Cannot connect to the store at `where`, on which another rank listens."""

    where: str
    why: str
    port: int


class StillImporting(Struct, frozen=True):
    """Has not come to set-up: it imports `module`, `seconds` after it was started; `computes`: it
    used the CPU between the samples, and did not wait for a file.
    """

    module: str
    seconds: float
    mount: str = ""
    filesystem: str = ""
    computes: bool = False


class NoProcessThere(Struct, frozen=True):
    """Expected on nodes that were asked and have no process of the job."""

    nodes: tuple[str, ...]
    by_slurm: bool = False  # it has said which ranks these nodes should have


class Died(Struct, frozen=True):
    """Its process has ended; `before_s`: of a job that is over, how long before the others, which got no further."""

    end: End
    before_s: float = 0.0


class Stopped(Struct, frozen=True):
    """Its process is not allowed to run; `tracer` is the debugger, 0 if unknown."""

    how: Literal["signal", "debugger", "freezer"]
    tracer: int = 0


class InputOutput(Struct, frozen=True):
    """In uninterruptible I/O: the system call and the kernel function that it waits in."""

    call: str
    wchan: str


class HoldsGil(Struct, frozen=True):
    """Its thread `tid` holds the GIL and does not release it; `runs`: it is at work, and the main thread
    asks for it. `beside`: ranks in the same call, of which no other rank waits for a message.
    """

    tid: int
    frame: Frame | None
    name: str = ""
    runs: bool = False
    beside: tuple[int, ...] = ()


class ShutDown(Struct, frozen=True):
    """Its program is over and its interpreter shut down, its process is there; it never reached `op`,
    None where the others are in teardown.
    """

    op: Op | None


class AllIn(Struct, frozen=True):
    """Every member entered `op` and it does not finish; `everyone`: the members are the whole job,
    or two sides.
    """

    op: Op
    members: tuple[int, ...]
    counted: bool  # operations were counted; else one may have made a call more or less
    sides: bool = False
    other: Op | None = None  # of a send its recv, and the other way round
    partners: tuple[int, ...] = ()  # several transfers: the ranks across from the one in all
    one_tag: bool = False  # both sides have recorded the same tag
    tags: tuple[tuple[int, int], ...] = ()  # of each side, by its rank, where they differ


class HeldBehind(Struct, frozen=True):
    """Stuck in an operation that is earlier in the program than where the ranks `past` are."""

    op: Op
    past: tuple[int, ...]


class PartApart(Struct, frozen=True):
    """What one rank sends to another in an all_to_all, and what that one expects; not `exact`: as far as the
    record had room for the numbers.
    """

    sender: int
    receiver: int
    sent: int
    expected: int
    exact: bool = True


class PartsApart(Struct, frozen=True):
    """All have entered an all_to_all, and what these send is not what their receivers expect."""

    op: Op
    pairs: tuple[PartApart, ...]


class AsksFor(Struct, frozen=True):
    """The members of the group that a rank makes."""

    members: tuple[int, ...]


class OwnOrder(Struct, frozen=True):
    """It makes a group with `mine` first, while the ranks `waiting` wait for it in that of `theirs`."""

    op: Op
    mine: tuple[int, ...]
    theirs: tuple[int, ...]
    waiting: tuple[int, ...]


class NoneLeaves(Struct, frozen=True):
    """All ranks are in set-up or teardown, and it does not finish; `later`: in set-up of further groups,
    after the job's own; `sides`: where they are in several calls, the ranks and the call of each.
    """

    op: Op
    starting: bool
    later: bool = False
    sides: tuple[tuple[tuple[int, ...], Op], ...] = ()


class OwnGroup(Struct, frozen=True):
    """All members are in `op`, which makes their group, and the ranks `past` have left that line: they
    have made another group there.
    """

    op: Op
    past: tuple[int, ...]


class StillIn(Struct, frozen=True):
    """Still at `op` ("" for code) while ranks have `ended` and others are in `leaving_op`; `left`:
    the other way round.
    """

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
    """How ranks were distinguished from the others by their stacks alone."""

    BEHIND = auto()
    AHEAD = auto()
    SMALLER_SIDE = auto()
    NO_ORDER = auto()
    ROOTS = auto()
    OTHER_GROUP = auto()
    OTHER_LINES = auto()
    MOST_HAVE_LEFT = auto()
    PAST = auto()
    ROUND_AHEAD = auto()
    OUT_OF_LOOP = auto()
    BOTH_SIDES = auto()
    CALLED_ALONE = auto()
    RING = auto()
    EITHER = auto()


class InOther(Struct, frozen=True):
    """In `op` while `others` are in `their_op`; `roots`: what root each rank names.

    `sides`: where the others are in several operations, the ranks and the operation of each.
    `condition`: of CALLED_ALONE, what the program asks before the call: ``rank == 0``.
    """

    how: Apart
    op: Op
    others: tuple[int, ...] = ()
    their_op: Op | None = None
    roots: tuple[tuple[int, int], ...] = ()
    sides: tuple[tuple[tuple[int, ...], Op], ...] = ()
    condition: str = ""


class NotSeen(Struct, frozen=True):
    """Ranks that could not be seen, and why; `op` is what the others wait in."""

    whys: tuple[str, ...]
    nodes: tuple[str, ...] = ()
    see: str = ""  # the command that shows more of them


class NotStarted(Struct, frozen=True):
    """Ranks whose scheduler has not started them, and why; of no known number where there is none."""

    whys: tuple[str, ...]
    see: str = ""  # the command that shows more


class WaitsForDevice(Struct, frozen=True):
    """Waits for its own GPU, for at least so many seconds: no other rank can hold it up. `op`: in an
    operation of a group that has no other member.
    """

    seconds: float = 0.0
    op: Op | None = None


class GpuFailed(Struct, frozen=True):
    """Its GPU's driver reported an error (Xid) that stops what runs there."""

    gpu: int  # -1: the driver does not list it any more
    xid: int
    says: str = ""


A_KEY = "a key"  # one that is not known


class UnsetKey(Struct, frozen=True):
    """Waits for keys of the store that no rank has set; or, where `waiting` do, is the one rank that
    does not: it is in `instead`.
    """

    keys: str
    waiting: tuple[int, ...] = ()
    instead: Op | None = None


class DecidedBy(Enum):
    """How the ranks that disagree were distinguished from the others."""

    MAJORITY = auto()
    ROLE = auto()
    PRECEDENT = auto()
    NEW_CALL = auto()
    UNDECIDED = auto()


class Disagrees(Struct, frozen=True):
    """Entered `mine` where the other members entered `theirs`; `fields` are those that differ.

    `sides`: where all are named, the ranks of either.
    """

    mine: Op
    theirs: Op | None
    fields: tuple[str, ...]
    my_values: tuple[str, ...]
    their_values: tuple[str, ...]
    ground: DecidedBy
    sides: tuple[tuple[int, ...], ...] = ()


class Diverged(Struct, frozen=True):
    """Made other calls than `reference`, a rank with the same role, or than itself in earlier
    rounds (how "own"). "either": made `mine` in excess, or left `theirs` out; no record tells.
    `again`: its own call before `mine` was the same, which no other rank makes twice in a row.
    """

    how: Literal["skipped", "extra", "either", "swapped", "other", "group", "own"]
    mine: Op | None
    theirs: Op | None
    reference: int
    before_records: bool = False
    again: bool = False
    tags: tuple[
        str, ...
    ] = ()  # of one transfer, its own and the other's, where they differ in that alone
    fewer: bool = False  # transfers than its neighbours wait for


class Ring(Struct, frozen=True):
    """Ranks that wait for one another; `mine` and `theirs`: where the calls of the named ranks
    part, while the others of the ring agree. `sides`: what each of two ranks is in, of which one
    waits in a transfer with the other. `each`: of crossing groups, who is in which call.
    """

    mine: Op | None = None
    theirs: Op | None = None
    sides: tuple[tuple[int, Op], ...] = ()
    each: tuple[tuple[tuple[int, ...], Op], ...] = ()
    whole: bool = False  # the records of all named ranks go back to their first call


class OtherPartners(Struct, frozen=True):
    """Exchanges with other ranks than those that expect it: `op` and its like to and from ranks that
    make no such transfer with it, while others wait for one that it does not make.
    """

    op: Op
    sends_to: tuple[int, ...]
    receives_from: tuple[int, ...]
    awaited_by: tuple[int, ...]


class OtherRound(Struct, frozen=True):
    """Of two ranks that wait for one another, the one whose round is another one than that of all
    others: it repeats its earlier rounds, which theirs do not (`kept`), or the other way round.
    `sides`: what each of the two is in.
    """

    kept: bool
    others: tuple[int, ...]
    sides: tuple[tuple[int, Op], ...]


class OneOf(Struct, frozen=True):
    """One of these; `unseen` left no dump."""

    unseen: tuple[int, ...]


Story = (
    NeverReached
    | NeverPosted
    | NeverStarted
    | NotJoined
    | OtherStore
    | StoreRefused
    | StillImporting
    | NoProcessThere
    | Died
    | Stopped
    | InputOutput
    | HoldsGil
    | ShutDown
    | AllIn
    | HeldBehind
    | PartsApart
    | OwnOrder
    | NoneLeaves
    | OwnGroup
    | StillIn
    | LeftWithout
    | PeerElsewhere
    | InOther
    | NotSeen
    | NotStarted
    | WaitsForDevice
    | GpuFailed
    | UnsetKey
    | Disagrees
    | Diverged
    | Ring
    | OneOf
    | OtherPartners
    | OtherRound
    | LogStory
    | RasStory
    | LockStory
    | SlowStory
    | StackStory
    | StartStory
    | UnnamedElsewhere
    | EndedItself
)
