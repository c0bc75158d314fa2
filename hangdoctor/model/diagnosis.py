"""What a diagnosis concludes, as `--json` prints it (docs/bundle.md): plain data."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from .layout import Layout

DIAGNOSIS_SCHEMA = "hangdoctor.diagnosis/1"

Status = Literal["hang", "slow", "failed", "healthy", "unknown"]
"""`failed`: the job did not hang, it failed and is over, and `causes` says what failed first."""
Kind = Literal[
    "not_entered",
    "stopped",
    "io_wait",
    "data_wait",
    "checkpoint_wait",
    "dead",
    "unreachable",
    "mismatch",
    "order",
    "p2p_unmatched",
    "interpreter_lock",
    "busy",
    "device_wait",
    "in_communication",
    "start_stall",
    "end_stall",
    "error",
    "slow",
]
# How a culprit's calls differ from those of ranks that run the same program.
Difference = Literal[
    "skipped",
    "added",
    "swapped",
    "operation",
    "size",
    "type",
    "root",
    "reduction",
    "group",
    "peer",
    "tag",
]
Source = Literal["stack", "ops", "proc", "ras", "gpu", "log", "silence", "trace"]


# --------------------------------------------------------------------------- diagnosis


class Where(Struct):
    """Where a cause sits: the operation that is blocked, and the culprit's own frame."""

    group: str | None = None
    group_ranks: list[int] | None = None
    op: str | None = None
    seq: int | None = None
    iteration: int | None = None
    phase: str | None = None
    frame: str | None = None


class Evidence(Struct):
    """What one source says of these ranks, in a sentence."""

    source: Source
    ranks: list[int]
    says: str


class Alternative(Struct):
    """A cause that was considered, and the reason against it."""

    kind: Kind
    ranks: list[int]
    why_not: str


class Cause(Struct):
    """One culprit, or the smallest set of ranks that the evidence singles out."""

    kind: Kind
    ranks: list[int]
    nodes: list[str]
    confidence: float
    summary: str
    where: Where = field(default_factory=Where)
    evidence: list[Evidence] = []
    alternatives: list[Alternative] = []
    advice: str = ""
    difference: Difference | None = None  # where its calls show one


class WaitOn(Struct):
    """The operation that ranks wait in; None where the evidence does not show it."""

    group: str | None
    op: str | None
    seq: int | None = None


class Wait(Struct):
    """Ranks that wait in one operation, and the ranks that they wait for."""

    ranks: list[int]
    on: WaitOn
    for_: list[int] = field(name="for", default_factory=list)


class StackFrame(Struct):
    """One Python frame."""

    name: str
    file: str
    line: int


class StackGroup(Struct):
    """Ranks that share one stack; frames outermost first, as a person reads a program."""

    ranks: list[int]
    thread: str
    frames: list[StackFrame]


class Missing(Struct):
    """Evidence that could not be had: of which ranks or node, what, and why."""

    ranks: list[int]
    node: str | None
    what: str
    why: str


class Job(Struct):
    """The job as the evidence shows it."""

    id: str
    world_size: int
    nodes: list[str]
    layout: Layout | None = None
    script: str = ""  # that most of its ranks run, where their command lines show it


class Took(Struct):
    """Seconds that capture and diagnosis took."""

    capture_s: float = 0.0
    diagnose_s: float = 0.0


class CallsOf(Struct):
    """The last recorded calls of one rank, from where it parts with another on, and the calls that
    it is still in.
    """

    rank: int
    calls: list[str]
    inside: list[str] = []  # outermost first
    last_s: float = -1.0  # how long before the capture its last event was


class CallsParting(Struct):
    """The culprit beside a healthy rank: `common` events alike, the last of them `alike`, then each
    its own.
    """

    says: str
    culprit: CallsOf
    peer: CallsOf | None = None
    common: int = 0
    alike: str = ""
    since: str = ""  # where one was traced later: from when on they are compared


class RankLine(Struct):
    """One line of the table of ranks: where each one runs."""

    rank: int
    node: str
    pid: int
    gpu: str
    local_rank: int
    state: str
    place: str
    unrecorded: str = ""  # the operation that its stack is in and its black box does not record


class Happening(Struct):
    """One line of what happened, in the order of time, as the job's logs tell it."""

    role: Literal["progress", "cause", "wait", "consequence", "end"]
    ranks: list[int]
    node: str | None
    at: str  # the stamp of the line, "" where it has none
    file: str
    line: int
    says: str


class LogLine(Struct):
    """A line of a log, cut."""

    line: int
    says: str


class Around(Struct):
    """The lines of a log around the one that the verdict rests on; with `line` 0 the last ones of the log.
    In `pointed`, lines with gaps between them, of which `line` is the first.
    """

    file: str
    line: int
    lines: list[LogLine]


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
    chain: list[Happening] = []  # from job logs: at most ten lines
    # Of a hang without causes: several ranks of which one is wrong, and nothing showed which
    open: list[Cause] = []
    around: Around | None = None  # from job logs
    # From job logs, where the verdict has little evidence: other lines that speak of a failure,
    # one part for a file
    pointed: list[Around] = []
    # "process 812": the only process, whose rank does not show; in lists it is rank 0
    called: str = ""
    advice: str = ""  # where there is no cause, and nothing was seen of nodes
    schema: str = DIAGNOSIS_SCHEMA
