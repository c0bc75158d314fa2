"""What is captured and what is concluded: plain data, no behaviour beyond reading it.

Data's way: a reader fills `Process` and `RankCapture`, a node sends one `NodeCapture`, the launcher
joins them to a `JobCapture`, the diagnosis turns that into a `Diagnosis`. All of it can be written
as JSON and read back (`hangdoctor.storage.bundle`), so that every incident replays offline.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from .calls import CallTrace
from .frame import Frame as Frame
from .gpu import Gpu
from .layout import Layout
from .log_facts import JobLogs
from .operations import RankOps
from .ras_report import RasReport
from .start_up import Import, Launch, StoreView, WaitingAgent

CAPTURE_SCHEMA = "hangdoctor.capture/1"


# --------------------------------------------------------------------------- capture


class ThreadSample(Struct, omit_defaults=True, gc=False):
    """One thread at one moment; frames innermost first, empty where no stack could be read."""

    tid: int
    name: str = ""
    state: str = ""  # R S D T t Z, from /proc/PID/task/TID/stat; "" where it is not known
    wchan: str = ""
    syscall: str = ""  # "read(5 -> /path)", as far as /proc allows
    cpu_s: float = 0.0
    switches: int = -1  # context switches so far; -1 where it is not known
    read_bytes: int = -1  # by read() and write() so far; -1 where it is not known
    write_bytes: int = -1
    received: int = -1  # by the TCP connection that it is blocked on; -1 where it is on none
    sent: int = -1
    gil: bool = False
    active: bool = False  # py-spy's opinion
    # A checksum of all variables of its frames, equal where none was set anew; 0 where none is shown.
    held: int = 0
    frames: list[Frame] = []


class ProcessSample(Struct, omit_defaults=True, gc=False):
    """One process at one moment."""

    at_s: float  # seconds since the capture began
    state: str = ""
    cpu_s: float = 0.0
    read_bytes: int = -1  # by read() and write() of all its threads; -1 where it is not known
    write_bytes: int = -1
    received: int = -1  # by all its TCP connections; -1 where it is not known
    threads: list[ThreadSample] = []
    stack_error: str = ""  # why there are no stacks
    unread: bool = False  # that was for want of time: it says nothing of the process
    shut_down: bool = False  # Python's modules are loaded, its interpreter is gone


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
    fills_pipe: bool = False  # of a child: blocked writing into a pipe that its rank has to read


class LockHolder(Struct, omit_defaults=True):
    """The process that holds the file lock that a rank waits for, by /proc/locks of its node.

    `pid` 0: it waits for a lock file to go away that no process of its node has open.
    """

    pid: int
    name: str = ""
    argv: list[str] = []
    path: str = (
        ""  # of the file, where the rank polls its lock and its system call does not show it
    )
    child: int = (
        0  # the rank's child that waits for it, as a worker of its loader; 0: the rank itself
    )


class FarEnd(Struct, omit_defaults=True):
    """The other end of a TCP connection or a pipe, and who has it where that is on this node."""

    address: str  # "10.0.0.7:8080"; "" of a pipe
    pid: int = 0
    name: str = ""
    argv: list[str] = []


class ToldEnd(Struct, omit_defaults=True, frozen=True):
    """How a rank ended, by what runs its node: a scheduler that keeps what a container ended with."""

    says: str  # "container pytorch has ended: OOMKilled, exit code 137"
    see: str = ""  # the command that shows more


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
    # Beside a black box: the same of torch's own recorder, which counts what C++ issues; else of NCCL.
    recorded: RankOps | None = None
    recorded_before: RankOps | None = None
    calls: CallTrace | None = None  # its last Python calls, where it was traced
    told: ToldEnd | None = None  # where it is gone, and its scheduler says how
    store: StoreView | None = None  # where it is in set-up
    importing: Import | None = None  # where its main thread imports a module
    lock: LockHolder | None = None  # where it waits for a file lock at the last sample
    # Of a job that is over and whose calls no box counts: it got on until the end.
    at_work: bool = False
    worked_in: Frame | None = (
        None  # the line of the user's that it was last seen at, of such a rank
    )
    left_s: float = 0.0  # the same, of one that ended with code 0: how long the others stood then
    has_jax: bool = False  # the compiled part of JAX is in its memory, by /proc/PID/maps
    # Of what its threads are blocked on at the last sample, by "socket:[7]" or "pipe:[7]".
    far_ends: dict[str, FarEnd] = {}


class NodeCapture(Struct, omit_defaults=True):
    """What one node answers to "capture now"."""

    node: str
    job: str = (
        ""  # key of the job on this node: "slurm:7.0", "torchrun:none", "127.0.0.1:29500" ...
    )
    ranks: list[RankCapture] = []
    layout: Layout | None = None
    notes: list[str] = []  # for the reader of the report: what could not be captured and why
    oom_kills: int = 0  # memory.events of the ranks' cgroup
    took_s: float = 0.0
    pyspy_s: float = 0.0  # the share of the stack reader: seconds of wall time, both samples
    ras: RasReport | None = None  # what NCCL's RAS answered on this node
    gpus: list[Gpu] = []  # all of the node, those of other jobs too
    boxes_unread: bool = False  # its ranks name a folder of black boxes that was not read in time
    raw: dict[str, str] = {}  # file name -> what a tool printed, kept for the bundle
    # Which of several jobs was taken: for the person who started the capture. It names the jobs of
    # others, and is not kept.
    chosen: str = ""
    # The ranks that each node of the job should have, as its launcher told one of the ranks here.
    expected: list[tuple[str, list[int]]] = []
    # What the launcher of the ranks here was asked to start.
    launch: Launch | None = None
    agents: list[WaitingAgent] = []  # of one job, where they run no rank
    ended: JobLogs | None = None  # how its ranks ended, where none of them runs any more


def world_size_of(nodes: Iterable[NodeCapture]) -> int:
    """How many ranks the job has, by its ranks, else by what its launcher was asked to start; 0 where
    neither says.
    """
    captures = list(nodes)
    known = max((rank.world_size for node in captures for rank in node.ranks), default=0)
    asked = (node.launch.world_size for node in captures if node.launch is not None)
    return known or max(asked, default=0)


class SilentNode(Struct, omit_defaults=True):
    """A node that did not report; its silence is evidence."""

    node: str
    why: str
    ranks: list[int] = []
    see: str = ""  # the command that shows more of it
    unstarted: bool = False  # its scheduler says that nothing has run there yet


class Site(Struct, omit_defaults=True, frozen=True):
    """The commands of a job's platform, where those of Slurm and a host's own shell are not to be had.
    In each `{node}` is the name of a node. "" where there is none.
    """

    enter: str = ""  # a shell on a node
    see: str = ""  # what became of a node
    log: str = ""  # what its ranks printed
    capture: str = ""  # captures the job again
    restart: str = ""  # ends all ranks; what starts them again is said behind it
    memory: str = ""  # what limits the memory of the ranks of a node


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
    # Where no rank is known: what each process is called, by the number that it has here instead.
    names: list[str] = []
    sizes: list[int] = []  # and of how many processes its stack is, where one stands for several
    rankless: bool = False  # of these: none of them runs a rank, as their titles or stacks show
    unstopped: list[str] = []  # nodes on which py-spy could not stop a process that has no name
    native: bool = False  # of stacks without Python, as gdb prints them
    part: bool = False  # the size of the job is not known: it may have more ranks than these
    notes: list[str] = []
    schema: str = CAPTURE_SCHEMA
    waited: dict[
        int, int
    ] = {}  # percent of its time that each rank waited in operations, over `waited_s` before the capture
    waited_s: float = 0.0
    logs: JobLogs | None = None  # what the job's own output tells
    over: bool = False  # no rank runs any more: made of what they have left
    by_heartbeat: bool = False  # its stacks are those that the probe wrote into the black boxes
    by_guard: bool = False  # they are in the log: printed at a limit, where nothing had got on
    # What torch's recorders hold is of the same processes and moment as the boxes: the probe wrote both.
    recorded_beside: bool = False
    slowest: int = -1  # the rank that stood out all that time, because it never waited
    site: Site | None = None
    # What a person types to see why a node, `{node}`, does not answer; "" where nothing is known.
    by_hand: str = ""
    packed: dict[
        str, bytes
    ] = {}  # of a large job: node -> its answer as it came, which the bundle keeps in place of the ranks

    @property
    def ended_meanwhile(self) -> bool:
        """Whether its ranks were there when the capture began, and had ended before it was over."""
        return self.over and self.origin == "live" and any(r.samples for r in self.ranks())

    def agents(self) -> list[WaitingAgent]:
        """torchrun's agents that run no rank."""
        return [agent for node in self.nodes for agent in node.agents]

    def ranks(self) -> list[RankCapture]:
        """All captured ranks in order."""
        return sorted((r for n in self.nodes for r in n.ranks), key=lambda r: (r.rank, r.pid))
