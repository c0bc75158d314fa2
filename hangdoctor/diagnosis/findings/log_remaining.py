"""Why job logs name no culprit, with what they show beside that."""

from __future__ import annotations

from enum import Enum, auto

from msgspec import Struct

from ...model.frame import Frame
from .log_counts import Ahead, CalledLess, LeftBefore, LeftBehind
from .log_stories import Quote, Source
from .named import Op


class WentOnAfter(Struct, frozen=True):
    """An error after which the job still made progress; `thread`: the name of the one that it ended."""

    quote: Quote
    ranks: tuple[int, ...] = ()
    thread: str = ""


class Undecided(Enum):
    """Why logs name no culprit."""

    EQUAL_COUNTERS = auto()
    ONE_WAITER = auto()
    WAITERS_ONLY = auto()
    AHEAD = auto()  # of ranks that never called the operation
    VICTIMS_ONLY = auto()
    ABORTS_ONLY = auto()
    CANCELLED = auto()
    TASK_FAILED = auto()  # Slurm's own word, without the task
    TIME_LIMIT = auto()
    PREEMPTED = auto()
    SIGNALLED = auto()  # the launcher
    GOES_ON = auto()
    NO_END = auto()
    ENDED_CLEANLY = auto()  # healthy
    WAITED_TO_LIMIT = auto()  # in a library that names no operation
    GAVE_UP = auto()
    GUARDED = auto()  # by the program's own guard
    WATCHDOG_STUCK = auto()  # NCCL's own, in a call
    STATES = auto()  # of processes, in a table
    POSTED = auto()  # receives, in MPI's own queues
    SHARED_QUEUE = auto()  # between an engine and its workers
    FROM_OUTSIDE = auto()  # healthy
    FROM_OUTSIDE_IDLE = auto()
    CUT_OFF = auto()  # all at work, and no exit is known
    TWO_SIDES = auto()  # of one operation
    RING = auto()  # of waits
    UNSET_KEY = auto()  # of the store
    ABORTED_INSIDE = auto()  # of an operation
    INTERRUPTED = auto()  # by Ctrl-C, in a hang or not
    STORE_GONE = auto()  # the rendezvous store
    ALL_SEND = auto()  # and none receives
    OTHER_CALLS = auto()  # by torch's check, whose line is cut
    CUT_IN_WAIT = auto()  # a traceback, without its last line
    LAUNCHER_ONLY = auto()  # it saw a process fail
    FOLLOWED = auto()  # `meaning` follows from another's end, or from the end of the job


class PrintedApart(Struct, frozen=True):
    """This rank printed another line than all others; `usual` "": they printed none like it."""

    rank: int
    quote: Quote
    usual: str


class LogRemaining(Struct, frozen=True):
    """The reason with its facts."""

    reason: Undecided
    ranks: tuple[int, ...] = ()
    op: Op | None = None
    iteration: int = -1
    code: int = 0
    ras: int = 0  # ranks that NCCL RAS reaches, all with equal counts
    codes: tuple[int, ...] = ()  # how the ranks ended
    seconds: float = 0.0  # since the last operation, or in the one that they waited in
    source: Source = "log"
    lost: bool = False  # some of them lost a connection
    peers: tuple[str, ...] = ()  # to these hosts, or "rank 0"
    library: str = "gloo"  # in which they waited
    no_recorder: bool = False  # its library has none that could be set next time
    other: Op | None = None  # what the other side called
    sides: tuple[str, ...] = ()  # what each of the two called it with
    on: tuple[tuple[int, ...], ...] = ()  # the ranks of each
    last: Quote | None = None  # the last progress that was printed
    before: WentOnAfter | None = None  # the last error, which the job survived
    trouble: Quote | None = None  # the first line that says error, of no kind that is known
    met: tuple[tuple[tuple[int, ...], Frame], ...] = ()  # where a signal met which ranks
    apart: PrintedApart | None = None
    waited: tuple[tuple[tuple[int, ...], Op], ...] = ()  # in which operations, of several
    quiet: tuple[int, ...] = ()  # the few without an error, or an exit, of their own
    silent: tuple[int, ...] = ()  # whose heartbeat stopped before the others', by up to `silent_s`
    silent_s: float = 0.0
    furthest: int = -1  # the one rank that waits in the lowest number of all that count alike
    furthest_op: Op | None = None
    unheard: tuple[int, ...] = ()  # the few below the highest of `ranks` that do not say the same
    aborted: tuple[int, ...] = ()  # whose watchdogs ended them, too, in no operation that shows
    cut: bool = False  # a line of a wait is cut, and others may have stood behind it
    kept: bool = False  # native code of these kept the interpreter's lock
    meaning: str = ""  # of the line `last`
    sender: int = 0  # the process that sent them the signal
    awaited: int = -1  # the rank that they waited for, by its number in `group`
    group: str = ""  # "" the whole job
    # Elements that these ranks brought, where they differ
    sizes: tuple[tuple[tuple[int, ...], int], ...] = ()
    process: int = 0  # who ended, or printed it, where no rank shows, and its node
    node: str = ""
    devices: tuple[int, ...] = ()  # that this process uses, by its own numbers
    earliest: bool = False  # the line `last` is the first sign of a failure
    unread: bool = False  # other lines speak of failures, in words that no rule knows
    ahead: Ahead | None = None
    behind: LeftBehind | None = None
    less: CalledLess | None = None
    left: LeftBefore | None = None
    stacked: bool = False  # the log has their stacks, which are shown
    tested: Quote | None = None  # a run of tests had ended well before
