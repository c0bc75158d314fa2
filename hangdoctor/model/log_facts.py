"""What job logs tell, as plain data: one struct for each kind of fact, with file and line.

A reader fills `JobLogs`; the bundle keeps it, so that a diagnosis of logs replays without them.
Numbers that a line does not tell are -1, times 0: a log has no rank 0 by default.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from .frame import Frame
from .log_lines import Excerpt, FailureLine

Role = Literal["cause", "consequence", "launcher", "note"]
"""What an error line means: it can be the first one; it follows from another rank's end; it is the
launcher's; or it explains without naming a failure."""

# Who says so
EXIT_LIST = "a list of exit codes"  # a launcher's own list, without an order in time
HYDRA = (
    "hydra"  # MPICH's and Intel's mpiexec: all processes that it saw end, those that it killed too
)
MPI_ABORT = "MPI_Abort"  # the rank that called it
NAN_GUARD = "nan_guard"  # the rule of checks for numbers that are not finite


class Fact(Struct, omit_defaults=True, kw_only=True, tag=True):
    """One thing that one line says, and who said it."""

    file: int = 0  # index in `JobLogs.files`
    line: int = 0  # counted from 1
    at: float = 0.0  # seconds since the epoch, in the clock of the node that wrote the line
    inherited: bool = False  # the line has no stamp: `at` is that of a line before it
    rank: int = -1
    local: int = -1
    task: int = -1  # Slurm's number of the task, which need not be the rank
    node: str = ""
    pid: int = 0
    worker: str = ""  # its name, where the log does not name it by rank: "DP0 TP3"
    attempt: int = 0  # of a job that was started again in the same log
    times: int = 1  # how often the same was said
    says: str = ""  # the line, cut


class TimedOut(Fact):
    """A rank waited in an operation until the time limit: it is a waiter, not the cause."""

    seq: int = -1
    op: str = ""
    group: str = ""
    group_rank: int = -1
    group_size: int = -1  # where the line has it
    numel_in: int = -1
    numel_out: int = -1
    ran_ms: float = 0.0
    limit_ms: float = 0.0
    frame: Frame | None = None  # the line of the program, where the recorder's stack was printed
    cut: bool = False  # the line ends in its middle


class Counted(Fact):
    """A rank's counters in one group; `at_work` is the operation that timed out there."""

    group: str = ""
    group_rank: int = -1
    enqueued: int = -1
    completed: int = -1
    started: int = -2  # -2: not told
    at_work: int = -1


class Told(Fact):
    """A rank was told by another that an operation timed out; -1: by itself, -2: by some other."""

    group: str = ""
    group_rank: int = -1
    by: int = -2


class GlooTimeout(Fact):
    """A wait in gloo that reached its limit."""

    what: str = ""  # recv, send
    limit_ms: float = 0.0


class PeerClosed(Fact):
    """The other side of a connection ended: who says it is a victim. `peer` is host or address."""

    peer: str = ""
    library: str = ""  # gloo, nccl, store


class Unanswered(Fact):
    """A message of `rank` to `to`, on the host `peer`, which was not taken until the limit."""

    to: int = -1
    peer: str = ""
    library: str = ""


class WaitsFor(Fact):
    """A line of the program's names a rank as the one that is waited for."""

    awaited: int = -1


class PostedReceive(Fact):
    """A receive of `rank` from `peer` (-1: from any) that nothing has come for, in a communicator of `size`."""

    peer: int = -1
    tag: int = -1
    size: int = 0


class BarrierMissed(Fact):
    """monitored_barrier names who did not come; so does JAX's coordinator, of a barrier by `name`."""

    missed_ranks: list[int] = []
    name: str = ""
    by: str = ""  # "" torch's
    limit_ms: float = 0.0


class Desync(Fact):
    """A line of torch's desync report: ranks that did not join, or have not finished, `seq`."""

    ranks: list[int] = []
    seq: int = -1
    how: Literal["not_joined", "not_finished", "never"] = "not_joined"
    by: str = ""  # whose report it is; "" torch's
    op: str = ""  # where the report has it
    names: list[str] = []  # Horovod's, of the operations that they have not submitted
    cut: bool = False  # more names follow, which are not in the line


class Mismatch(Fact):
    """torch compared what two ranks run."""

    one: int = -1
    other: int = -1
    seq: int = -1
    one_op: str = ""
    other_op: str = ""
    one_shape: str = ""
    other_shape: str = ""
    one_dtype: str = ""
    other_dtype: str = ""
    other_seq: int = -1


class NcclCall(Fact):
    """A call of NCCL that NCCL printed: its number on its communicator, its kind and its size."""

    op: str = ""
    seq: int = -1
    count: int = -1
    dtype: int = -1
    root: int = -1
    size: int = 0  # ranks of the communicator; 0: the line is cut
    comm: str = ""  # its address in the process


class GpuShared(Fact):
    """NCCL found two ranks on one GPU, by their numbers in its communicator."""

    one: int = -1
    other: int = -1
    gpu: str = ""  # its bus number, as NCCL prints it: 31000


class DeviceLost(Fact):
    """HCCL found that the heartbeats of a device had stopped: of `device` on `node`, not of who says
    so.
    """

    device: int = -1


class StoreCount(Fact):
    """So many of the processes came to the rendezvous within the time limit; `waiting`: until then,
    and 0 of 0 where all had come.
    """

    joined: int = -1
    expected: int = -1
    limit_s: float = 0.0
    waiting: bool = False


class StoreWait(Fact):
    """A key of the store was not set in time; `awaited` is the rank that sets it, where it shows: its
    number in the group `within`, or in the whole job.
    """

    key: str = ""
    awaited: int = -1
    within: str = ""
    waiting: int = -1
    why: str = ""


class Ended(Fact):
    """How a process ended; a negative code is the signal."""

    code: int = 0
    by: str = ""  # who says so: torchelastic, deepspeed, slurm, shell
    first: bool = False  # torchelastic's "first observed failure", which is often a victim
    listed: int = 0  # exit codes in the list that says so
    left: bool = False  # its program had ended before, without an exception
    given: int = -1  # the number that the program gave to MPI_Abort
    stayed_s: float = 0.0  # it did not end at a SIGTERM, and was killed so long after it
    waited_s: float = 0.0  # it had been in an operation for longer than the job ever was
    more: int = 0  # so many others did the same, which the launcher counts and does not name
    place: Frame | None = None  # by the stack that its runtime printed


class CutEnd(Fact):
    """A row of torchelastic's table of failures that is cut before its exit code."""

    first: bool = False  # its "first observed failure"


# The whole process stood still, or one thread of it kept the GIL; "" where nothing shows which.
Silent = Literal["", "stopped", "gil"]


class NoBeat(Fact):
    """The last heartbeat of a process that others of its job outlived by far."""

    silent_s: float = 0.0  # until the first rank ended
    inside: bool = False  # it was in an operation
    how: Silent = ""  # by signs of life that need no interpreter


class OomKill(Fact):
    """The kernel or Slurm killed for lack of memory."""

    events: int = 0
    victim: str = ""  # the process's name


class NodeLost(Fact):
    """Slurm, Ray, or Open MPI's mpirun lost these nodes."""

    nodes: list[str] = []
    by: str = "Slurm"


class Cancelled(Fact):
    """Slurm or a person ended the job; `why` is "" where it does not say."""

    why: str = ""


class KilledByLauncher(Fact):
    """The launcher ended a process because another one had failed."""

    signal: str = ""


class Signalled(Fact):
    """The launcher itself was asked to end, by this signal; it passes it on to its ranks. With `pid`:
    that process was.
    """

    number: int = 0
    sender: int = 0  # the process that sent it, where the line has it


class PythonError(Fact):
    """A traceback, folded."""

    error: str = ""  # ValueError
    message: str = ""
    frame: Frame | None = None  # its last frame in the user's own code, else the last of all
    frames: list[Frame] = []  # the innermost first, a few
    rule: str = ""  # the rule of `log_rules.toml` that knows the error
    values: dict[str, str] = {}  # what the rule took from its last line
    role: Role = "cause"
    chained: str = ""  # the error that it was raised from
    began: int = 0  # the line of its traceback's head; 0 unknown
    survived: bool = False  # the job went on after it
    logged: bool = False  # the program caught and logged it
    inside: bool = False  # its traceback begins in a function of the user's: it was caught there
    thread: str = ""  # the name of the thread that it ended; the process goes on
    waited_s: float = 0.0  # as of `Ended`
    stood_s: float = 0.0  # it was raised where the rank had stood so long, as all others ended
    independent: bool = False  # no operation has reached the rank since the first one ended


class KnownError(Fact):
    """A line that a rule knows."""

    rule: str = ""
    role: Role = "cause"
    values: dict[str, str] = {}  # what the rule took from the line
    survived: bool = False
    logged: bool = False  # a logger's warning
    place: Frame | None = None  # by the stack that its runtime printed below


class Progress(Fact):
    """An iteration that a rank printed: the last one of its stream."""

    iteration: int = -1
    total: int = -1
    part: str = ""  # of an iteration, which has a count of its own: "eval"
    moved: int = 0  # the last line in which the count was higher than before


class Took(Fact):
    """How long a part of its work took a rank, as it printed: the longest of its lines; `late`: it slept,
    or was late, for so long before a collective.
    """

    seconds: float = 0.0
    late: bool = False


class PrintedStep(Fact):
    """The last step that a rank printed by its own number, in so many `lines`; of the step before that,
    how far back it was and how many lines it had, 0 where it is not known.
    """

    step: int = -1
    lines: int = 0
    back: int = 0
    before: int = 0


class OwnLine(Fact):
    """The last line that a rank printed of its own before the hang; or one in which it is alone
    (`lead`): its last one is another than that of all others (`usual`), it has another value in it
    where all had the same before, it says that it left something out, or it holds an infinity or a
    NaN. It is kept apart from the facts that are known.
    """

    lead: Literal["", "last", "value", "left out", "not finite"] = ""
    usual: str = ""
    again: int = 0  # how often its rank printed such a line before


class LastWords(Fact):
    """The last line that begins with the number of a rank, in words: ``rank 0: finished``."""


class Finished(Fact):
    """A line that only a clean end prints; `tests`: of a run of tests, all of which went well."""

    tests: bool = False


class Guarded(Fact):
    """A guard of the program's own found that its process does not move, and where that is."""

    seconds: float = 0.0
    iteration: int = -1
    place: str = ""


class Asked(Fact):
    """A question on standard input, or the prompt of a debugger; `answered`: its program went on."""

    question: str = ""
    debugger: bool = False
    answered: bool = False


class LineApart(Fact):
    """A line that all ranks printed at their start, of the one rank with other numbers in it."""

    usual: str = ""  # what another one printed


class Listed(Fact):
    """Processes of one name that a list of ps or top shows in one state, and the others."""

    state: str = ""  # Z: ended, T: stopped, D: asleep without a way to interrupt it
    pids: list[int] = []
    others: list[int] = []
    name: str = ""
    kin: bool = True  # of one parent, as the list shows


class RankValues(Fact):
    """A table of one value a rank, of the same thing."""

    ranks: list[int] = []
    values: list[str] = []  # as printed
    title: str = ""  # the line above


class Restarted(Fact):
    """The launcher or the scheduler started the job again."""


class RankStates(Fact):
    """A table has the states of ranks: which run, and the others, which mostly sleep."""

    running: list[int] = []
    others: list[int] = []


class ThreadStack(Fact):
    """A stack that faulthandler, gdb, pystack or the program itself printed, innermost first."""

    thread: str = ""
    frames: list[Frame] = []
    fatal: str = ""  # faulthandler's reason: "Segmentation fault"
    # Printed since nothing had got on: by faulthandler at its limit, or by a guard of the program's own.
    guarded: bool = False


class UnreadFailure(Fact):
    """A line that speaks of a failure in words that no rule knows; `strength` from 2, a plain word of
    it, to 3, one that only an end has; 1: a sentence that is one only right above an end. It is kept
    apart from the facts that are known.
    """

    strength: int = 2
    general: bool = False  # that something failed, and not what
    between: bool = False  # of another process, or a wait for one: who says so need not be at fault
    launcher: bool = False  # a launcher says so
    device: int = -1
    peer: str = ""  # the other process, where the line has it: "rank 3", an address
    text: str = ""  # the line without its prefixes
    likeness: list[str] = []  # the lines that were said together, without their numbers
    after: int = 0  # ordinary lines that its speaker printed after it
    began: int = 0  # the first line of what was said together
    end: bool = False  # that its process ends, or how, and not why


AnyFact = (
    TimedOut
    | Counted
    | Told
    | GlooTimeout
    | PeerClosed
    | Unanswered
    | PostedReceive
    | WaitsFor
    | BarrierMissed
    | Desync
    | Mismatch
    | NcclCall
    | GpuShared
    | DeviceLost
    | StoreCount
    | StoreWait
    | Ended
    | CutEnd
    | NoBeat
    | OomKill
    | NodeLost
    | Cancelled
    | KilledByLauncher
    | Signalled
    | PythonError
    | KnownError
    | Progress
    | Took
    | PrintedStep
    | LastWords
    | OwnLine
    | Finished
    | Guarded
    | Asked
    | LineApart
    | Listed
    | RankValues
    | RankStates
    | Restarted
    | ThreadStack
    | UnreadFailure
)


class LogFile(Struct, omit_defaults=True):
    """One file that was read."""

    name: str
    lines: int = 0
    size: int = 0  # bytes, unpacked
    trouble: str = ""  # its first line that says error and that no rule knows
    trouble_line: int = 0  # counted from 1
    cut: bool = False  # it ends in the middle of the prefix of a line


class RuleText(Struct, omit_defaults=True):
    """What a rule says of a known error."""

    meaning: str
    advice: str = ""
    kind: str = "error"  # the kind of cause
    between: bool = False  # between who says it and another process: it is not to blame


class JobLogs(Struct, omit_defaults=True):
    """All facts of a job's logs in the order of time, as far as stamps and lines show it."""

    files: list[LogFile] = []
    facts: list[AnyFact] = []
    world_size: int = 0
    homes: dict[int, str] = {}  # rank -> node
    heard: list[int] = []  # ranks that wrote a line with their number
    rules: dict[str, RuleText] = {}  # of the errors in `facts`
    attempts: int = 1
    runs: int = 1  # of these, which were started apart: as jobs of their own, not again
    # Ranks without a black box and without an end, where others of the job have them.
    unseen: list[int] = []
    of_boxes: list[int] = []  # files whose facts are from black boxes and exit codes
    unread: list[UnreadFailure] = []  # failures in words that no rule knows, in the order of time
    printed: list[OwnLine] = []  # the last lines of ranks, and those in which one is alone
    excerpts: list[Excerpt] = []
    pointed: list[FailureLine] = []  # the lines of each file that a person would point at

    def name_of(self, file: int) -> str:
        """The name of the file with this number, as facts have it; "" without one, as in a damaged bundle."""
        return self.files[file].name if 0 <= file < len(self.files) else ""
