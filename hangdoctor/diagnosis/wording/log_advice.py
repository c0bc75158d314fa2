"""What to do about what a job's logs, or its black boxes when it is over, show."""

from __future__ import annotations

from ..findings import Finding
from ..findings.log_counts import StillPreparing, TookLonger
from ..findings.log_stories import (
    AllWaited,
    DidNotTimeOut,
    FailedFirst,
    FewerCalls,
    GuardFound,
    InterruptedIn,
    LinkBroken,
    LoggedDeath,
    NamedByTorch,
    NodeFailed,
    OtherCall,
    PeerGone,
    PrintedLess,
    StillCounted,
    StoreHostGone,
    SubmittedApart,
    TooFewJoined,
    TookNothing,
    TooManyJoined,
)
from . import terms
from .advice import by_story
from .log_words import next_time
from .release import on_node, open_at
from .terms import choose

_SHOWN = 5  # nodes that are named


@by_story.register
def _(story: FailedFirst, finding: Finding) -> str:
    look = story.advice or _look_at_frame(finding)
    if not story.thread:
        return look
    alone = "Its rank goes on without that thread: what waits for it, such as a queue that it serves, waits without end."
    return f"{look} {alone}".strip()


def _look_at_frame(finding: Finding) -> str:
    if finding.frame is None:
        return ""
    place, here = open_at(finding.frame), terms.capital(on_node(finding).strip())
    look = f"Look at {terms.frame(finding.frame)}"
    if not place:
        return f"{look}."
    return f"{look}. {here}: {place}." if here else f"{look}: {place}."


@by_story.register
def _(story: LoggedDeath, finding: Finding) -> str:
    where = terms.host_names(finding.nodes) or "its node"
    crashed = _of_a_signal(story.end.code, where)
    if crashed and story.after is not None:
        return crashed
    if story.after is not None or (story.said is not None and finding.kind == "error"):
        return story.advice or _of_its_words(story, where)
    if story.memory:
        return "Fewer processes a node (ranks, data-loader workers), less that each holds, or a larger --mem; then start again from the last checkpoint."
    if story.aborted:
        return (
            story.advice
            or f"Read what {terms.ranks(finding.ranks)} printed just before, and the program's own log; next time keep the output of each rank (mpirun: --tag-output; srun: -l)."
        )
    if story.left:
        return "Find the sys.exit, return or end of the loop that this rank took and the others did not; what it did last is in the evidence."
    if story.end.code == 0:
        holds = (
            " Rank 0 holds the store of the others, and has to end last: a barrier before its end."
        )
        return f"Find the return, sys.exit or end of a loop that it took and the others did not.{holds if finding.ranks == [0] else ''}"
    by_signal = _of_a_signal(story.end.code, where)
    if by_signal:
        return by_signal
    tee = "mpirun: --tag-output; srun: -l"
    if finding.gloo:
        tee = "torchrun: --log-dir DIR --tee 3"
    elif not finding.no_recorder:
        tee = f"torchrun: --log-dir DIR --tee 3; {tee}"
    keep = f"Next time keep the output of each rank ({tee})."
    if story.alone or story.end.code == -6:
        return f"{_of_an_abort(story, finding)} {keep}"
    return keep


def _of_a_signal(code: int | None, where: str) -> str:
    """Where to look after a death by one of these; "" for another one."""
    if code == -7:
        return f"Mostly /dev/shm is full: df /dev/shm on {where} (in a container --shm-size=16g)."
    if code == -11:
        return f"On {where}: coredumpctl, or gdb on its core file, for the stack of the crash; of a Python program, run it again with python -X faulthandler."
    if code == -9:
        return (
            f"Mostly the node ran out of memory: on {where}, dmesg -T | grep -i -e oom -e killed."
        )
    return ""


def _of_its_words(story: LoggedDeath, where: str) -> str:
    """Where it printed before its end what had failed."""
    if story.after is None:
        return "Read that line and those around it: they are the program's own reason, and what it means by them, its documentation says."
    return f"The lines below that one have the arguments of the call and where it failed; dmesg -T on {where}, and the tools of its network (ibstat, fi_info), show whether that was well."


def _of_an_abort(story: LoggedDeath, finding: Finding) -> str:
    """Where the reason of a SIGABRT, or of a lone exit code, is printed, and what it may be."""
    its = choose(finding.ranks or 1, "its", "their")
    if story.end.code != -6:
        it = choose(finding.ranks or 1, "it", "they")
        return f"See the last lines of {its} own output: an exception of {its} own, or that {it} lost another rank."
    may = "a failed assertion, an exception of C++, or a library that gave up"
    if story.alone:
        may = f"an error of {its} own, or a watchdog, which aborts a rank that waited for another one too long"
    gloo = "; gloo aborts where ranks made different calls: 'Received data size doesn't match'"
    return f"See the last lines of {its} own output: {may}{gloo if finding.gloo else ''}."


@by_story.register
def _(story: NodeFailed, finding: Finding) -> str:
    if not story.nodes:
        return "sacct -j JOB -X -o NodeList,State; sinfo -R names the node."
    if story.by == "Open MPI":
        return f"Is {story.nodes[0]} up, and its pod, if it is one? Then the network between it and the node of mpirun: firewalls, and which interfaces Open MPI takes (--mca oob_tcp_if_include); else its dmesg for lack of memory."
    if story.by != "Slurm":
        if len(story.nodes) > 1:
            names = ", ".join(story.nodes[:_SHOWN])
            return f"Are they up ({names}{' ...' if len(story.nodes) > _SHOWN else ''})? Read their dmesg and the logs of {story.by} there; where several are lost at once, the head and the network first."
        return f"Is {story.nodes[0]} up? Read its dmesg and the logs of {story.by} there."
    return f"scontrol show node {story.nodes[0]}; resume the job without it (--exclude)."


@by_story.register
def _(story: GuardFound, finding: Finding) -> str:
    return f"See what {story.place} waits for; hangdoctor dump before the guard ends the job shows its stack."


@by_story.register
def _(story: InterruptedIn, finding: Finding) -> str:
    if finding.frame is None:
        return ""
    return f"See what {terms.frame(finding.frame)} waits for; if the job was not hanging, this is chance."


@by_story.register
def _(story: PeerGone, finding: Finding) -> str:
    return f"Read the log of the ranks on {story.peer} from its end: did one of them fail before this? If not, look at the network between the hosts."


@by_story.register
def _(story: TookNothing, finding: Finding) -> str:
    where = terms.host_names(finding.nodes) or "its node"
    return f"Is {where} up, and does the process run? Read its log from the end, and dmesg -T there; hangdoctor dump while the job waits shows its place."


@by_story.register
def _(story: LinkBroken, finding: Finding) -> str:
    return story.advice


@by_story.register
def _(story: TooManyJoined, finding: Finding) -> str:
    if story.beyond:
        return "Compare WORLD_SIZE, the number of nodes and that of processes a node in the start of each: all have to count the same job."
    return "Remove the store's file (init_method=file://...), or take another MASTER_PORT; end what an earlier start left."


@by_story.register
def _(story: TooFewJoined, finding: Finding) -> str:
    if story.each > 1:
        return "Give each node its own number (NODE_RANK, torchrun --node-rank, or let srun start one task for each GPU), and print RANK, LOCAL_RANK and WORLD_SIZE of each process."
    return "Count the nodes that have started their launcher (squeue -s, the first lines of each node's log), and MASTER_ADDR on each."


@by_story.register
def _(story: StoreHostGone, finding: Finding) -> str:
    if story.quiet:
        return "Let the rank that holds the store end last: a barrier before its end. Its last words are in the evidence."
    return f"Read the log of {terms.ranks(finding.ranks)} from its beginning."


@by_story.register(StillCounted)
@by_story.register(TookLonger)
def _(story: StillCounted | TookLonger, finding: Finding) -> str:
    if isinstance(story, TookLonger) and story.late:
        return f"See what keeps it before that call ({story.at}): a sleep of a test, a slow load; or give the others a longer time limit."
    return (
        "Share that work among the ranks, do it less often, or give the others a longer time limit."
    )


@by_story.register
def _(story: StillPreparing, finding: Finding) -> str:
    if story.alone:
        return "Share that work among the ranks, do it before the job starts, or give the others a longer time limit: timeout in init_process_group."
    return "Make the data ready once before the job starts, or give the others a longer time limit: timeout in init_process_group (transformers: ddp_timeout)."


@by_story.register(FewerCalls)
@by_story.register(DidNotTimeOut)
@by_story.register(NamedByTorch)
def _(story: FewerCalls | DidNotTimeOut | NamedByTorch, finding: Finding) -> str:
    if isinstance(story, DidNotTimeOut) and story.counting:
        return "Share that work among the ranks, do it less often, or give the others a longer timeout in init_process_group."
    if isinstance(story, NamedByTorch) and story.by == "lightgbm":
        return "Is its process running, and its port of the machine list open? From another machine: nc -vz HOST PORT."
    if isinstance(story, NamedByTorch) and story.by == "ucc":
        own = choose(finding.ranks or 1, "its own output", "their own output")
        return f"Read {own} from the end: what came instead of that operation. hangdoctor dump while the job waits shows the place of each rank."
    if isinstance(story, NamedByTorch) and story.by == "jax":
        logs = choose(finding.ranks, "its own log", "their own logs")
        return f"Read {logs} from the end: an error there came first. hangdoctor dump while the job waits shows the place of each."
    was = choose(finding.ranks or 1, "it was", "they were")
    if finding.boxed:  # it ran under hangdoctor run
        return f"Next time take hangdoctor dump before the job ends: it shows where {was} instead."
    shows = "the black boxes then show" if finding.no_recorder else "the recorder then shows"
    return f"{next_time(finding.no_recorder)}: {shows} where {was} instead."


@by_story.register
def _(story: PrintedLess, finding: Finding) -> str:
    return "hangdoctor dump before the job is ended shows where it is instead; what it printed may also lie in a buffer."


@by_story.register
def _(story: OtherCall, finding: Finding) -> str:
    where = choose(finding.ranks or 2, "on that rank", "between these ranks")
    if story.pair and story.mine.name == story.theirs.name and story.mine.seq != story.theirs.seq:
        return "Look for a call that one of them made and the other did not before this operation: a branch, an exception that was caught, or a group that is used elsewhere too."
    return f"Look for a branch, a batch or a sequence length that differs {where} before this operation."


@by_story.register
def _(story: SubmittedApart, finding: Finding) -> str:
    return "Look for the branch by which one side comes to the one operation and not to the other; an operation without a name is called by its number (noname.12), so that one call more shifts all that follow."


@by_story.register
def _(story: AllWaited, finding: Finding) -> str:
    if finding.gloo:
        return "Check the network between these nodes: ip -s link; ss -ti state established; GLOO_SOCKET_IFNAME."
    if finding.no_recorder:
        return "Check the network between these nodes, and their devices and cables, by the tools of their maker; dmesg -T."
    return "Check links and GPUs of these nodes: ibstat, nvidia-smi -q, dmesg -T for Xid; run nccl-tests; NCCL_DEBUG=INFO next time."
