"""What the operation-level diagnosis reads and what it concludes."""

from __future__ import annotations

from enum import Enum, auto

from msgspec import Struct

from ...model.capture import Frame
from ...model.diagnosis import Status, Wait
from ...model.layout import Layout
from ...model.operations import RankOps
from ..findings import Doing, End, Finding, Op


class OpsEvidence(Struct):
    """The operations of all ranks at two moments, and what other sources know about ranks that have
    none.
    """

    ops: dict[int, RankOps]  # the last capture
    earlier: dict[int, RankOps] = {}  # the first capture; empty where there was only one
    world_size: int = 0
    layout: Layout | None = None
    silent: dict[int, str] = {}  # rank -> why it was not seen
    dead: dict[int, End] = {}  # rank -> how it ended
    stopped: set[int] = set()
    places: dict[int, Frame] = {}  # rank -> where its stack is
    doing: dict[int, Doing] = {}  # rank -> what it does there
    # rank -> kind of cause that its stack and /proc speak for, when it is in no communication
    outside: dict[int, str] = {}
    moving: set[int] = set()  # ranks that other evidence saw making progress between the captures
    # Ranks that wait in what gloo's recorder leaves out, as in a send, by their stacks -> their peer,
    # -1 where it is not known. None: no stacks show it.
    unrecorded: dict[int, int] | None = None
    transfers: dict[int, Op] = {}  # of these: the send or receive, by its line
    nodes: dict[int, str] = {}  # rank -> its node
    taken_s: float = 0.0  # wall clock of the last capture, 0 where it is not known
    kept: bool = False  # files of a job that is over, or dumps: nothing can look again


class Remark(Enum):
    """What the report notes besides the findings."""

    NO_RECORDS = auto()
    IN_PASSING = auto()
    ONE_CAPTURE = auto()
    SOME_MOVED = auto()
    EARLIER_ATTEMPT = auto()  # `number`, counted from 1
    EARLIER_FAILURE = auto()
    SEVERAL_RUNS = auto()  # `number` of them
    NO_WAIT = auto()
    BARE_RANKS = auto()
    INFERRED_GROUPS = auto()
    UNRECORDED_WAIT = auto()
    UNNAMED_GROUPS = auto()
    STACKS_DISAGREE = auto()
    LOG_DISAGREES = auto()
    RECORDS_DISAGREE = auto()
    RECORDER_DISAGREES = auto()  # that of the same processes; `op`: which one the verdict follows
    LOG_SAW_IT_WAIT = auto()
    SEVERAL_UNSEEN = auto()
    BEYOND_RECORDS = auto()
    MANY_UNSEEN = auto()
    PASS_FAILED = auto()
    GPU_STANDS_OUT = auto()
    GPU_ERROR = auto()


class Note(Struct, frozen=True):
    """A remark with its facts: the ranks, how many, a frame, the ranks that are blamed."""

    remark: Remark
    ranks: tuple[int, ...] = ()
    number: int = 0
    op: str = ""
    frame: Frame | None = None
    blamed: tuple[int, ...] = ()


class OpsVerdict(Struct):
    """Findings name culprits only; every rank that merely waits is in `waits`."""

    status: Status
    findings: list[Finding] = []
    waits: list[Wait] = []
    notes: list[Note] = []
