"""What is captured and what is concluded: plain data, no behaviour beyond reading it.

Data's way: a reader fills `Process` and `RankCapture`, a node sends one `NodeCapture`, the launcher
joins them to a `JobCapture`, the diagnosis turns that into a `Diagnosis`. All of it can be written
as JSON and read back (`hangdoctor.bundle`), so that every incident replays offline.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from .calls_model import CallTrace
from .layout import Layout
from .operations import RankOps
from .ras_model import RasReport

CAPTURE_SCHEMA = "hangdoctor.capture/1"
DIAGNOSIS_SCHEMA = "hangdoctor.diagnosis/1"

Status = Literal["hang", "slow", "healthy", "unknown"]
Kind = Literal[
    "not_entered", "stopped", "io_wait", "data_wait", "checkpoint_wait", "dead", "unreachable", "mismatch", "order",
    "p2p_unmatched", "interpreter_lock", "busy", "device_wait", "in_communication", "start_stall", "end_stall", "slow",
]  # fmt: skip
Source = Literal["stack", "ops", "proc", "ras", "gpu", "log", "silence", "trace"]


# --------------------------------------------------------------------------- capture


class Frame(Struct, omit_defaults=True, gc=False):
    """One frame of a Python (or native) stack."""

    name: str
    file: str
    line: int
    code: str = ""  # the source line, where the node could read the file
    values: dict[str, int] = {}  # whole-number locals that place the frame: step, src, dst ...
    group: str = ""  # of a collective's own frame: "world", "sub", or "" where it could not be told

    def __str__(self) -> str:
        return f"{self.name} ({self.file}:{self.line})"


class ThreadSample(Struct, omit_defaults=True, gc=False):
    """One thread at one moment; frames innermost first, empty where no stack could be read."""

    tid: int
    name: str = ""
    state: str = ""  # R S D T t Z, from /proc/PID/task/TID/stat; "" where it is not known
    wchan: str = ""
    syscall: str = ""  # "read(5 -> /path)", as far as /proc allows
    cpu_s: float = 0.0
    switches: int = -1  # context switches so far; -1 where it is not known
    gil: bool = False
    active: bool = False  # py-spy's opinion
    frames: list[Frame] = []


class ProcessSample(Struct, omit_defaults=True, gc=False):
    """One process at one moment."""

    at_s: float  # seconds since the capture began
    state: str = ""
    cpu_s: float = 0.0
    read_bytes: int = -1
    write_bytes: int = -1
    threads: list[ThreadSample] = []
    stack_error: str = ""  # why there are no stacks


class Process(Struct, omit_defaults=True):
    """One process, sampled once or twice."""

    pid: int
    ppid: int = 0
    name: str = ""
    argv: list[str] = []
    started: float = 0.0  # seconds since the epoch
    user: str = ""
    samples: list[ProcessSample] = []
    gone: bool = False  # it was there and is not any more, or is a zombie
    exit_code: int | None = None  # of a zombie; a negative number is the signal that ended it
    tracer: int = 0  # pid of the debugger that holds it
    frozen: bool = False  # its cgroup is frozen


class RankCapture(Process, omit_defaults=True, kw_only=True):
    """One rank: its process, where it runs, and the children that work for it."""

    rank: int
    node: str = ""
    world_size: int = 0
    local_rank: int = -1
    local_world_size: int = 0
    gpu: str = ""
    children: list[Process] = []
    ops: RankOps | None = None  # from its black box or recorder, at the last sample
    ops_before: RankOps | None = None  # at the first sample: the end of its history only
    calls: CallTrace | None = None  # its last Python calls, where it was traced


class NodeCapture(Struct, omit_defaults=True):
    """What one node answers to "capture now"."""

    node: str
    job: str = ""  # key of the job on this node: "slurm:7.0", "torchrun:none", "127.0.0.1:29500" ...
    ranks: list[RankCapture] = []
    layout: Layout | None = None
    notes: list[str] = []  # for the reader of the report: what could not be captured and why
    oom_kills: int = 0  # memory.events of the ranks' cgroup
    took_s: float = 0.0
    pyspy_s: float = 0.0  # the share of the stack reader: seconds of wall time, both samples
    ras: RasReport | None = None  # what NCCL's RAS answered on this node
    raw: dict[str, str] = {}  # file name -> what a tool printed, kept for the bundle


class SilentNode(Struct, omit_defaults=True):
    """A node that did not report; its silence is evidence."""

    node: str
    why: str
    ranks: list[int] = []


class JobCapture(Struct, omit_defaults=True):
    """Everything that a diagnosis reads."""

    job: str
    nodes: list[NodeCapture] = []
    silent: list[SilentNode] = []
    world_size: int = 0
    layout: Layout | None = None
    settle_s: float = 0.0
    taken: float = 0.0  # seconds since the epoch
    took_s: float = 0.0
    origin: str = "live"  # or "files": made of files that a person collected
    numbered: bool = False  # ranks were not known and are numbered by node and pid
    notes: list[str] = []
    schema: str = CAPTURE_SCHEMA
    waited: dict[int, int] = {}  # percent of its time that each rank waited in operations, over `waited_s` before the capture
    waited_s: float = 0.0
    slowest: int = -1  # the rank that stood out all that time, because it never waited
    packed: dict[str, bytes] = {}  # of a large job: node -> its answer as it came, which the bundle keeps in place of the ranks

    def ranks(self) -> list[RankCapture]:
        """All captured ranks in order."""
        return sorted((r for n in self.nodes for r in n.ranks), key=lambda r: (r.rank, r.pid))


# --------------------------------------------------------------------------- diagnosis


class Where(Struct):
    """Where a cause sits: the operation that is held up, and the culprit's own frame."""

    group: str | None = None
    group_ranks: list[int] | None = None
    op: str | None = None
    seq: int | None = None
    iteration: int | None = None
    phase: str | None = None
    frame: str | None = None


class Evidence(Struct):
    source: Source
    ranks: list[int]
    says: str


class Alternative(Struct):
    kind: Kind
    ranks: list[int]
    why_not: str


class Cause(Struct):
    kind: Kind
    ranks: list[int]
    nodes: list[str]
    confidence: float
    summary: str
    where: Where = field(default_factory=Where)
    evidence: list[Evidence] = []
    alternatives: list[Alternative] = []
    advice: str = ""


class WaitOn(Struct):
    group: str | None
    op: str | None
    seq: int | None = None


class Wait(Struct):
    ranks: list[int]
    on: WaitOn
    for_: list[int] = field(name="for", default_factory=list)


class StackFrame(Struct):
    name: str
    file: str
    line: int


class StackGroup(Struct):
    """Ranks that share one stack; frames outermost first, as a person reads a program."""

    ranks: list[int]
    thread: str
    frames: list[StackFrame]


class Missing(Struct):
    ranks: list[int]
    node: str | None
    what: str
    why: str


class Job(Struct):
    id: str
    world_size: int
    nodes: list[str]
    layout: Layout | None = None


class Took(Struct):
    capture_s: float = 0.0
    diagnose_s: float = 0.0


class CallsOf(Struct):
    """The last recorded calls of one rank, from where it parts with another on, and the calls that it is still in."""

    rank: int
    calls: list[str]
    inside: list[str] = []  # outermost first
    last_s: float = -1.0  # how long before the capture its last event was


class CallsParting(Struct):
    """The culprit beside a healthy rank: `common` events alike, the last of them `alike`, then each its own."""

    says: str
    culprit: CallsOf
    peer: CallsOf | None = None
    common: int = 0
    alike: str = ""


class RankLine(Struct):
    """One line of the table of ranks: where each one runs."""

    rank: int
    node: str
    pid: int
    gpu: str
    local_rank: int
    state: str
    place: str


class Diagnosis(Struct):
    """The verdict, as CONTRACT's `--json` has it, with the table of ranks added."""

    status: Status
    job: Job
    summary: str
    causes: list[Cause] = []
    waits: list[Wait] = []
    stacks: list[StackGroup] = []
    missing: list[Missing] = []
    ranks: list[RankLine] = []
    notes: list[str] = []
    took: Took = field(default_factory=Took)
    calls: CallsParting | None = None  # where call tracing was on
    schema: str = DIAGNOSIS_SCHEMA
