"""What happened, as job logs tell it: stories for ranks that may be unknown by number."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ...model.diagnosis import Kind
from ...model.frame import Frame
from ...model.log_facts import Silent
from .log_counts import StillPreparing, TookLonger
from .log_devices import DeviceStory
from .log_places import PlaceStory
from .named import End, Op

Source = Literal["log", "boxes", "dumps", "both"]
"""Who says so: the job's log, its black boxes and exit codes, each of both, or the dumps of its
recorders.
"""


class Someone(Struct, frozen=True):
    """Whoever a line speaks of, where it does not tell the rank."""

    local: int = -1
    task: int = -1
    pid: int = 0
    worker: str = ""
    tasks: tuple[int, ...] = ()  # several of them
    processes: int = 0  # how many, where several say the same and none has a rank
    devices: tuple[int, ...] = ()  # that the process uses, by its own numbers
    part: str = ""  # what it is, where its stack shows that it runs no rank
    worker_of: str = ""  # whose worker it is, where that one repeats its words
    beside: str = ""  # whose failure the lines right beside its own tell
    file: str = ""  # of several with such a name, in which it stands


class Quote(Struct, frozen=True):
    """A line of a log, as evidence."""

    file: str
    line: int
    says: str


class FailedFirst(Struct, frozen=True):
    """Its own error came before anything else; `meaning` is what a rule knows of it."""

    error: str
    message: str = ""
    meaning: str = ""
    advice: str = ""
    someone: Someone = Someone()
    nodes: tuple[str, ...] = ()
    by: tuple[int, ...] = ()  # of a mismatch: the ranks that say so, which may be right
    later: bool = False  # another rank had failed before, and this one did by itself
    went_on: bool = False  # it only logged the error
    alike: tuple[int, ...] = ()  # all ranks, where each raised it at one moment
    thread: str = ""  # the name of the thread that it ended, which is no main one
    others: int = 0  # so many more had the same, which the log counts and does not name
    others_on: tuple[str, ...] = ()  # their nodes, which are not those of the ranks
    spoke: tuple[int, ...] = ()  # who printed it, where the others ended alike without it
    together: bool = False  # several raised it in one place: which did first does not show
    device: bool = False  # a kernel or driver speaks of a device, and not of a process
    one_of: bool = False  # one of the ranks, and which does not show
    said: Quote | None = None  # of a crash: what it printed right before, which no rule knows
    meanwhile: Quote | None = None  # what another process printed in the same second
    meanwhile_by: str = ""  # "rank 3"
    reported: bool = False  # another process reports its end, and `said` may stand anywhere
    child_before: Quote | None = None  # a parent had seen another one fail, whose words are missing
    living: tuple[int, ...] = ()  # of those that were said to be lost: their own logs go on
    lives_by: Quote | None = None


class RaisedLater(Struct, frozen=True):
    """An error of its own that ended it after others had waited for it to their limit: it may have
    been about that all the time.
    """

    error: str
    says: str
    frame: Frame | None = None
    advice: str = ""
    thread: str = ""  # the name of the one that it ended, while others began to wait


class TableTells(Struct, frozen=True):
    """A check printed one value of each rank: `how` they are, and the exception that it raised."""

    how: str
    where: Quote
    ranks: tuple[int, ...]  # of the table
    error: str = ""


class FailedInWords(Struct, frozen=True):
    """It was the first to speak of a failure, in words that no rule knows."""

    says: str
    at: str  # file and line of the log
    someone: Someone = Someone()
    launcher: bool = False  # a launcher says so, of a process that it does not name
    named_later: bool = False  # who it was, a later line tells
    lost: str = ""  # the host that others lost their connection to below it


class LoggedDeath(Struct, frozen=True):
    """Its process ended by a signal, or for lack of memory."""

    end: End
    someone: Someone = Someone()
    memory: bool = False  # the kernel or Slurm says that it was for lack of memory
    cut: tuple[int, ...] = ()  # whose ends, at the same moment, the log has without a code
    left: bool = False  # its program had ended before, without an exception
    aborted: bool = False  # it called MPI_Abort, which ends the whole job
    others: int = 0  # so many more did the same, which the log counts and does not name
    alone: bool = False  # by SIGABRT or an exit code, and no other is seen to fail
    by: str = ""  # the launcher that says that it was first, and nothing else does
    said: Quote | None = None  # its line before that on a failure, in words that no rule knows
    above: bool = False  # who printed that line does not show
    times: int = 1  # how often the log has the line `said`
    after: Quote | None = None  # what had failed before, mostly for another's end or the network
    advice: str = ""  # what to do about that, where a rule knows it
    alike: int = 0  # so many processes printed the line, which stands in the log so often


class NodeFailed(Struct, frozen=True):
    """Slurm (or Ray, or Open MPI) lost the nodes; none named: it ended the job for a node that the log does not
    name.
    """

    nodes: tuple[str, ...]
    by: str = "Slurm"


class PeerGone(Struct, frozen=True):
    """Others lost their connection to this host, or to these ranks, before anything else."""

    peer: str
    by: tuple[int, ...]
    library: str


class TookNothing(Struct, frozen=True):
    """Messages of these ranks to it were not taken until the time limit."""

    by: tuple[int, ...]
    library: str


class LinkBroken(Struct, frozen=True):
    """A connection failed before anything else: between who says so and these peers."""

    by: tuple[int, ...]
    peers: tuple[str, ...]
    meaning: str
    advice: str = ""
    hosts: tuple[str, ...] = ()  # of those who say so
    process: int = 0  # who says so, where no rank shows
    processes: int = 0  # so many said the same, and no rank shows
    devices: tuple[int, ...] = ()  # that this process uses, by its own numbers
    first_sign: bool = False  # nothing in the logs came before it
    beside: str = ""  # whose failure the lines right beside tell, where no other name shows


class TooFewJoined(Struct, frozen=True):
    """So many of the processes came to the rendezvous; -1: some, of which `came` are known."""

    joined: int
    expected: int
    seconds: float
    unheard: bool = False  # the ranks are those of which no line is
    still: bool = False  # the others wait on where the log ends
    came: tuple[int, ...] = ()  # as far as the log shows it
    each: int = 1  # so many processes called themselves by each of these numbers


class GuardFound(Struct, frozen=True):
    """The program's own guard says where it was; it says of all others that they were in `op`."""

    place: str
    op: Op
    iteration: int = -1


class InterruptedIn(Struct, frozen=True):
    """The interrupt that ended the job met it outside of the collective that the others were in."""

    others: tuple[int, ...]


class PrintedLess(Struct, frozen=True):
    """The last step that it printed is below that of all others, and the job was idle after that."""

    step: int
    furthest: int
    others: tuple[int, ...]


class DidNotEnd(Struct, frozen=True):
    """It did not end at a SIGTERM at which the others ended, and was killed later."""

    seconds: float


class StoppedRunning(Struct, frozen=True):
    """Its heartbeat stopped, inside an operation that the others wait in or before it."""

    seconds: float  # before the first rank ended
    op: Op | None = None
    inside: bool = True
    how: Silent = ""


class WentOn(Struct, frozen=True):
    """It entered an operation when all other ranks had ended cleanly."""

    op: Op
    ended: tuple[int, ...]


class TooManyJoined(Struct, frozen=True):
    """More processes came to the rendezvous than the job has: some are of an earlier start, or have
    a rank `beyond` the size.
    """

    joined: int
    expected: int
    beyond: tuple[int, ...] = ()


class StoreHostGone(Struct, frozen=True):
    """A rank that others waited for in the store did not set its key, or went away."""

    waiting: tuple[int, ...]
    gone: bool
    quiet: bool = False  # it had spoken, and printed no error


NamedBy = Literal["desync", "barrier", "store", "horovod", "ray", "jax", "lightgbm", "ucc"]


class NamedByTorch(Struct, frozen=True):
    """A library's own check names who did not come: a desync report, monitored_barrier, a key,
    Horovod's list of stalled operations, Ray Train's barrier, JAX's coordinator, UCC's check.
    """

    by: NamedBy
    op: Op


class NamedByProgram(Struct, frozen=True):
    """The program's own line calls it the one that is stuck or faulty, while ranks waited."""

    where: Quote


class GaveUpOn(Struct, frozen=True):
    """The time limit of rank `by`'s own program ran out while it waited for this one, as its error
    says.
    """

    by: int
    where: Quote


class SubmittedApart(Struct, frozen=True):
    """Horovod lists operations that some ranks have submitted and others not, and the other way round."""

    sides: tuple[tuple[str, tuple[int, ...]], ...]  # (operation, ranks that wait in it)
    neither: tuple[int, ...]  # ranks that have submitted none of them
    number: int  # of operations


class FewerCalls(Struct, frozen=True):
    """Counters: `enqueued` of these ranks is below the operation that the others wait in."""

    op: Op
    enqueued: int


class DidNotTimeOut(Struct, frozen=True):
    """All others waited until the limit and these did not: weaker the less is known of them."""

    op: Op
    heard: bool
    counting: str = ""  # what it printed after the limit of the others had passed


class StillCounted(Struct, frozen=True):
    """It counted on, as the log shows, until the job was ended; the others had waited for so long."""

    last: Quote
    seconds: float = 0.0


class OtherCall(Struct, frozen=True):
    """At one number of one group, something else than the others."""

    mine: Op
    theirs: Op
    my_size: str
    their_size: str
    pair: bool = False  # two ranks only: which of them is wrong does not show
    raised: bool = False  # by a check, which ends the job: nothing hangs


class AllWaited(Struct, frozen=True):
    """Every rank of the job timed out in the same operation with the same counters."""

    op: Op
    ranks: tuple[int, ...] = ()


LogStory = (
    FailedFirst
    | FailedInWords
    | TableTells
    | NamedByProgram
    | GaveUpOn
    | DeviceStory
    | PlaceStory
    | LoggedDeath
    | NodeFailed
    | PeerGone
    | LinkBroken
    | TookNothing
    | TooFewJoined
    | GuardFound
    | InterruptedIn
    | PrintedLess
    | DidNotEnd
    | StoppedRunning
    | WentOn
    | TooManyJoined
    | StoreHostGone
    | NamedByTorch
    | SubmittedApart
    | FewerCalls
    | DidNotTimeOut
    | StillCounted
    | TookLonger
    | StillPreparing
    | OtherCall
    | AllWaited
)


class LogAgrees(Struct, frozen=True):
    """Beside other evidence the logs name the same ranks; or, with `waiting`, those timed out in
    `op` and the ranks did not.
    """

    kind: Kind
    ranks: tuple[int, ...]
    op: Op | None = None
    waiting: tuple[int, ...] = ()
    source: Source = "log"


class HeartbeatStopped(Struct, frozen=True):
    """Its process wrote no heartbeat for so long before the first rank ended."""

    seconds: float
    how: Silent = ""


class LogContradicts(Struct, frozen=True):
    """Beside other evidence the logs name these ranks instead; or, with `op`, the ranks that are
    blamed timed out in it themselves.
    """

    kind: Kind
    ranks: tuple[int, ...]
    op: Op | None = None
    source: Source = "log"


class Event(Struct, frozen=True):
    """One line of the chain."""

    role: Literal["progress", "cause", "wait", "consequence", "end"]
    file: str
    line: int
    at: float
    ranks: tuple[int, ...]
    node: str
    fact: str  # the kind of fact
    says: str
    seconds: float = 0.0
    op: Op | None = None
    end: End | None = None
