"""What to do: a command or a place to look at that fits the case, or nothing."""

from __future__ import annotations

from functools import singledispatch

from ...model.capture import Site
from ...text.ranges import format_hosts
from .. import findings as f
from ..findings import Finding, Home
from . import terms
from .release import PIECES, natively, on_node, open_at, pid_of, release

_COUNT = "To see next time which rank skipped a call, start the job with: hangdoctor run -- CMD (or TORCH_FR_BUFFER_SIZE=2000; before torch 2.9 TORCH_NCCL_TRACE_BUFFER_SIZE)."
_AGAIN = "To see which rank skipped a call, capture again: its black boxes were not read in time."
_GRADIENTS = "DistributedDataParallel needs the same number of batches on every rank (drop_last=True, or its join())."
_ONE_CALL_MORE = frozenset({f.Apart.BEHIND, f.Apart.SMALLER_SIDE, f.Apart.EITHER})
_LONGEST_LINE = 120  # characters of a line of the program
_STRAGGLER = "Compare its node with the others: clocks, temperatures, other processes, storage."


def advice(finding: Finding) -> str:
    """One or two sentences; "" where nothing specific can be said."""
    usual = finding.usual
    first = (
        f"Capture again with --settle {usual.settle_s} first: a rank that moves in that time is only slow."
        if usual is not None
        else ""
    )
    second = ""
    if finding.unrecorded and not finding.over:
        stack = terms.choose(
            finding.ranks, "Look at its stack: if it is", "Look at their stacks: if they are"
        )
        second = f"{stack} in backward, the others made fewer steps."
    if isinstance(finding.story, f.NeverReached) and any(
        a.why is f.Why.UNRECORDED_TRANSFER for a in finding.against
    ):
        second = "See in its stack whether it waits in a send or receive: hangdoctor dump."
    return " ".join(part for part in (first, second, _specific(finding)) if part)


def _specific(finding: Finding) -> str:
    if finding.raised is not None and finding.raised.thread:
        return "The main thread may wait for what that thread was to bring: let it hand its exception on, as a queue's last element."
    if finding.raised is not None:
        tries = "It may have tried that for longer than the others waited: let it give up sooner than their time limit."
        return f"{finding.raised.advice} {tries}".lstrip()
    if finding.crashed_in is not None:
        return f"Read that stack from {terms.frame(finding.crashed_in)} outwards: in gdb, info args and info locals in each of its frames, up to the program's own call."
    if finding.gradients and isinstance(finding.story, f.InOther):
        theirs = finding.story.their_op
        counted = theirs is not None and theirs.seq >= 0
        uneven = finding.story.how in _ONE_CALL_MORE or not counted
        return f"{by_story(finding.story, finding)} {_GRADIENTS if uneven else ''}".strip()
    if finding.holding is not None:
        return release(finding.holding, finding)
    home = finding.homes[0] if len(finding.homes) == 1 else None
    if isinstance(finding.story, f.NeverReached) and finding.story.raised:
        return "See which exception that call raised, as of an object that cannot be pickled, and what catches it: let it end the job, or agree on it with all ranks."
    if isinstance(finding.story, f.NeverReached):
        beyond = finding.story.instead
        if beyond is not None and (beyond.frame is not None or beyond.site):
            at = terms.frame(beyond.frame) if beyond.frame is not None else terms.site(beyond.site)
            return f"See why {terms.ranks(finding.ranks)} went on to {at} without that call (a branch, a loop that ended earlier, a swallowed exception)."
        return elsewhere(finding, home)
    return by_story(finding.story, finding)


def count(finding: Finding) -> str:
    """How to see which call was skipped; "" where black boxes are there, or would not show it."""
    if finding.boxed or finding.uncounted:
        return ""
    return _AGAIN if finding.boxes_unread else _COUNT


def _nodes(finding: Finding) -> str:
    return format_hosts(finding.nodes)


def elsewhere(finding: Finding, home: Home | None) -> str:
    """For a rank that is alive and elsewhere, by what it is in."""
    here, pid = on_node(finding), pid_of(finding)
    at = terms.frame(finding.frame) if finding.frame is not None else ""
    if finding.doing is not None and finding.doing.act == "idle":
        return "Its actor's call has ended, by a return or an error: see with ray.get what it returned or raised, and why before the others were done."
    if finding.kind == "data_wait":
        return _loader(finding, at)
    if finding.kind == "checkpoint_wait":
        return _writing(here, pid)
    if finding.kind == "io_wait":
        return f"Its file system or device does not answer. See which mount it is{here}: timeout 5 df; dmesg -T | tail."
    if finding.kind == "slow":
        return "It moved between the two samples. Capture again with a larger --settle to see whether it is slow or stuck."
    if finding.native:
        again = "Print its stack again after 10 s: one that has changed is slow, and not stuck."
        return f"Look at {at}. {again}" if at else again
    if pid:
        return _in_python(finding, at)
    return f"Look at {at}{_line_of(finding)}." if at else ""


def _line_of(finding: Finding) -> str:
    """The line of the source, where no process is known that could be asked for more."""
    code = finding.frame.code if finding.frame is not None else ""
    return f": {code}" if 0 < len(code) <= _LONGEST_LINE else ""


def _writing(here: str, pid: int) -> str:
    if not pid:
        return ""
    return f"See which file it writes{here}: ls -l /proc/{pid}/fd. Does its file system answer? timeout 5 df FOLDER."


def _in_python(finding: Finding, at: str) -> str:
    """For a process that is known, by what its frame does."""
    here, pid = on_node(finding), pid_of(finding)
    if finding.kind == "busy":
        return f"See where it spends its time{here}: py-spy top --pid {pid}. To see whether it is only slow, capture again with a larger --settle."
    if at and finding.doing is not None and terms.doing(finding.doing) == "sleeping":
        place = open_at(finding.frame)  # native frames of a sleep show nothing
        run = f" {terms.capital(here.strip()) or 'See'}: {place}." if place else ""
        return f"See why {at} sleeps.{run}"
    where = f"Look at {at}; its" if at else "See its"
    return f"{where} native frames{natively(finding, pid)}."


def _straggler(finding: Finding) -> str:
    """What makes a rank slow: the loading of its data, where it was seen in that."""
    if finding.doing is None or finding.doing.act != "loading":
        return _STRAGGLER.replace(
            "its node", terms.choose(finding.ranks, "its node", "their nodes")
        )
    pid, here = pid_of(finding), on_node(finding)
    workers = f"{here}: py-spy top --subprocesses --pid {pid}" if pid else ""
    return f"See where its data loader's workers spend their time{workers}. A larger num_workers or lighter items speed it up."


def _loader(finding: Finding, at: str) -> str:
    here, pid = on_node(finding), pid_of(finding)
    where = f" at {at}" if at else ""
    if finding.homes and not (finding.children or finding.over):
        native = natively(finding, pid) if pid else ""
        return f"The loader runs in the rank itself. See what the dataset waits for{where}{native}."
    dead = "one is dead or blocked, its file system does not answer, or an item of the data is bad"
    stacks = f"{here}: py-spy dump --subprocesses --pid {pid}" if pid else " in the evidence"
    waits = f"It waits{where}. " if where else ""
    error = "DataLoader(timeout=...) turns this into an error."
    return f"{waits}See its workers{stacks}; {dead}. {error}"


@singledispatch
def by_story(story: object, finding: Finding) -> str:
    """What to do about a kind of story; a module registers its own."""
    return ""


@by_story.register
def _(story: f.NeverPosted, finding: Finding) -> str:
    return elsewhere(finding, None)


@by_story.register
def _(story: f.NeverStarted, finding: Finding) -> str:
    gpus = terms.choose(finding.ranks, "its GPU", "their GPUs")
    look = f"Look at {gpus}{on_node(finding)}: nvidia-smi -q, dmesg -T | grep -i xid"
    return f"{look}; run again with CUDA_LAUNCH_BLOCKING=1."


@by_story.register
def _(story: f.NotJoined, finding: Finding) -> str:
    if finding.kind == "end_stall":
        return elsewhere(finding, None)
    if story.later:
        return _past_or_late(story, finding)
    if pid_of(finding):
        return (
            f"See what it does before init{on_node(finding)}: py-spy dump --pid {pid_of(finding)}."
        )
    return f"Check that the launcher started {terms.ranks(finding.ranks)}, with the MASTER_ADDR, MASTER_PORT and WORLD_SIZE of the others."


def _past_or_late(story: f.NotJoined, finding: Finding) -> str:
    """For a rank that the others wait for in the making of a further group."""
    who = terms.ranks(finding.ranks)
    at = terms.frame(story.op.frame) if story.op.frame is not None else story.op.name
    pid = pid_of(finding)
    see = f" Its stack{on_node(finding)}: py-spy dump --pid {pid}." if pid else ""
    return f"Every rank must make the same groups in one order: see whether {who} has not come to {at}, skipped it, or made another group there.{see}"


@by_story.register
def _(story: f.OtherStore, finding: Finding) -> str:
    name = story.own.partition(":")[0]
    return f"See what the name leads to{on_node(finding)}: getent hosts {name}. All ranks need the same MASTER_ADDR and MASTER_PORT; check /etc/hosts there and the job script."


@by_story.register
def _(story: f.StoreRefused, finding: Finding) -> str:
    return f"Open TCP port {story.port} for the nodes of the job, or take another one (MASTER_PORT); see the firewall{on_node(finding)}: nft list ruleset; ip rule."


@by_story.register
def _(story: f.StillImporting, finding: Finding) -> str:
    if story.computes:
        pid = f" -p {pid_of(finding)}" if pid_of(finding) else ""
        return f"It computes while it imports. See whether the cores of its node are busy{on_node(finding)}: top -b -n 1{pid}; give each rank cores of its own (--cpus-per-task), and compile extensions before the job."
    where = f" {story.mount}" if story.mount else ""
    return f"Time it{on_node(finding)}: time python -c 'import {story.module or 'torch'}'. Put the Python environment on a local disk, or in one image file; see whether{where or ' its file system'} is overloaded."


@by_story.register
def _(story: f.NoProcessThere, finding: Finding) -> str:
    nodes, them = terms.host_names(story.nodes), terms.choose(story.nodes, "it", "them")
    if story.by_slurm:
        return f"See the launcher's log of {nodes}, and start the job without {them}: sbatch --exclude={nodes}."
    return f"See the launcher's log of {nodes}, and whether the command that starts the ranks ran there; else start the job without {them}."


@by_story.register
def _(story: f.Died, finding: Finding) -> str:
    rank = terms.choose(finding.ranks, "this rank", "these ranks")
    if story.before_s:
        who = terms.choose(finding.ranks, "it", "they")
        return f"Find the return, sys.exit or end of a loop that {who} took and the others did not."
    if story.end.code == 0:
        return "See why the other ranks did not end too (fewer batches, an early return?), and whether the last checkpoint is whole, before you cancel the job."
    again = f"The job cannot continue without {rank}: {_start_again(finding.site)}"
    if story.end.told is not None:
        memory = "; raise its memory limit, or use fewer data-loader workers"
        more = memory if story.end.oom_kills else ""
        return f"{again}{more}; see {story.end.told.see}."
    if story.end.oom_kills:
        limit = finding.site.memory if finding.site is not None else ""
        larger = f"a larger {limit or '--mem'}"
        return f"{again}; its cgroup ran out of memory: use fewer data-loader workers or {larger}."
    if finding.site is not None and finding.site.log:
        return f"{again}; see {finding.site.log.format(node=finding.nodes[0])}."
    log = terms.choose(finding.ranks, "see the end of its log", "see the end of their logs")
    return f"{again}; {log}, and on {_nodes(finding) or 'its node'}: dmesg -T | tail."


def _start_again(site: Site | None) -> str:
    if site is None or not site.restart:
        return "cancel it and restart from the last checkpoint"
    return f"restart it from the last checkpoint: {site.restart}"


@by_story.register
def _(story: f.Stopped, finding: Finding) -> str:
    if story.how == "freezer":
        by_slurm = " (a suspended job? scontrol resume JOB)" if finding.site is None else ""
        return f"Thaw it: the freezer of its cgroup{by_slurm}."
    if story.how == "debugger":
        tracer = f" (process {story.tracer}{on_node(finding)})" if story.tracer else ""
        return f"Continue or detach the debugger{tracer}."
    pid = pid_of(finding)
    here = f",{on_node(finding)}" if on_node(finding) else ""
    return f"If it was not stopped on purpose{here}: kill -CONT {pid}." if pid else ""


@by_story.register
def _(story: f.InputOutput, finding: Finding) -> str:
    return f"Its file system or device does not answer. See which mount it is{on_node(finding)}: timeout 5 df; dmesg -T | tail."


@by_story.register
def _(story: f.HoldsGil, finding: Finding) -> str:
    at = f" in {terms.frame(story.frame)}" if story.frame is not None else " there"
    see = f" See it{natively(finding, pid_of(finding))}."
    release = "(ctypes.CDLL instead of PyDLL, Py_BEGIN_ALLOW_THREADS)"
    if story.runs:
        release += f"; if it is not yours, {PIECES}"
    return f"The native code called{at} must release the GIL {release}.{see if pid_of(finding) else ''}"


@by_story.register
def _(story: f.ShutDown, finding: Finding) -> str:
    log = finding.site.log if finding.site is not None else ""
    see = f": {log.format(node=finding.nodes[0])}" if log and finding.nodes else ""
    printed = terms.choose(finding.ranks, "what it printed last", "what they printed last")
    pid = pid_of(finding)
    waits = f" What its exit waits in{on_node(finding)}: gdb -p {pid} -batch -ex bt." if pid else ""
    return f"Read {printed}{see}: a traceback, or none where the program came to its end.{waits}"


@by_story.register
def _(story: f.ForkedLock, finding: Finding) -> str:
    start = "start the helper by spawn or forkserver, or before any thread"
    return f"A thread of the parent held that lock when it forked: {start}."


@by_story.register
def _(story: f.PeerElsewhere, finding: Finding) -> str:
    return f"Compare the sends and receives of ranks {story.waiter} and {finding.ranks[0]}. {count(finding)}".strip()


@by_story.register
def _(story: f.NotStarted, finding: Finding) -> str:
    return f"See what it lacks: {story.see}."


@by_story.register
def _(story: f.NotSeen, finding: Finding) -> str:
    nodes, pid = _nodes(finding) or format_hosts(story.nodes), pid_of(finding)
    if pid:
        return f"Its process was found, without records: py-spy dump --pid {pid}{on_node(finding)}."
    if not nodes:
        again = finding.site.capture if finding.site is not None else ""
        capture = f"capture every node of the job ({again or '--jobid, --hostfile'})"
        return f"See whether {terms.ranks(finding.ranks)} {terms.choose(finding.ranks, 'was', 'were')} started, and {capture}."
    if story.see:
        return f"See what became of it: {story.see}. {_without_it(finding.site)}"
    if finding.site is not None:
        see = finding.site.see.format(node=" ".join(finding.nodes or story.nodes))
        look = f"See what became of it: {see}" if see else f"Look at {nodes}: ping, its console"
        return f"{look}. {_without_it(finding.site)}"
    return f"Look at {nodes}: scontrol show node {nodes}, ping, its console. Without it the job must be restarted."


def _without_it(site: Site | None) -> str:
    restart = f": {site.restart}" if site is not None and site.restart else ""
    return f"Without it the job must be restarted{restart}."


@by_story.register
def _(story: f.LostByRas, finding: Finding) -> str:
    where = f" on {', '.join(story.hosts)}" if story.hosts else ""
    return f"See whether the process and its node are alive{where}: dmesg -T for Xid and OOM. If not, restart from the last checkpoint."


@by_story.register
def _(story: f.LostProcesses, finding: Finding) -> str:
    host, pid, _ = story.processes[0]
    where = f"On {host}: " if host else ""
    return f"{where}ps -o pid,stat,wchan:30,cmd -p {pid}; dmesg -T for Xid and OOM."


@by_story.register
def _(story: f.ErrorByRas, finding: Finding) -> str:
    where = f"On {terms.host_names(finding.nodes)}: " if finding.nodes else ""
    return f"{where}dmesg -T for Xid; the log of its process with NCCL_DEBUG=WARN says what failed."


@by_story.register
def _(story: f.FewerByRas, finding: Finding) -> str:
    return "See what these ranks do instead: hangdoctor dump."


@by_story.register
def _(story: f.UnsetKey, finding: Finding) -> str:
    what = "the key" if story.keys == f.A_KEY else story.keys
    return f"Find the line that sets {what} and the rank that should have reached it."


@by_story.register
def _(story: f.OneOf, finding: Finding) -> str:
    return "See in their stacks which of them waits in a send or receive: hangdoctor dump, or py-spy dump on each."


@by_story.register
def _(story: f.SlowByWaiting, finding: Finding) -> str:
    return _straggler(finding)


@by_story.register
def _(story: f.SlowByArrival, finding: Finding) -> str:
    return _straggler(finding)


@by_story.register
def _(story: f.SlowBySamples, finding: Finding) -> str:
    return _straggler(finding)


@by_story.register
def _(story: f.SlowByPace, finding: Finding) -> str:
    return _straggler(finding)


@by_story.register
def _(story: f.SlowByHistory, finding: Finding) -> str:
    return _straggler(finding)
