"""What job logs show, in words: heads of verdicts. What to do is in `log_advice`."""

from __future__ import annotations

from ...text.late import late
from ...text.plural import count
from ...text.ranges import format_ranks
from ..findings import Finding
from ..findings.log_counts import StillPreparing, TookLonger
from ..findings.log_stories import (
    AllWaited,
    DidNotTimeOut,
    FewerCalls,
    GuardFound,
    InterruptedIn,
    LinkBroken,
    NamedByTorch,
    NodeFailed,
    OtherCall,
    PeerGone,
    PrintedLess,
    Someone,
    StillCounted,
    StoreHostGone,
    SubmittedApart,
    TooFewJoined,
    TookNothing,
    TooManyJoined,
)
from . import stories, terms
from .differences import subject
from .terms import choose

WORDS = 120  # characters of a line that is not known
_SIZE = 60  # characters of the shapes of several tensors
_RECORDER = "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1"


def next_time(no_recorder: bool) -> str:
    """How to start the job so that the next hang leaves more; only NCCL has that recorder."""
    recorder = "" if no_recorder else f"{_RECORDER}, or with "
    return f"Next time start it with {recorder}hangdoctor run -- CMD"


_BAR = late(r"\s{0,9}\|[^|]{0,400}\|\s{0,9}|\s{2,}")  # what is drawn of a progress bar
_NOBODY = Someone()
NO_RANK = "(the log does not show which)"


def who_of(finding: Finding, someone: Someone = _NOBODY) -> str:
    """The ranks; else what is known of the process instead."""
    if finding.ranks:
        return subject(finding)
    at = f" on {terms.host_names(finding.nodes)}" if finding.nodes else ""
    if someone.worker_of:
        return f"A worker{at} of {someone.worker_of} {NO_RANK}"
    if someone.part:
        return f"{terms.capital(someone.part)}{at}, which runs no rank,"
    if someone.worker:
        process = f" (process {someone.pid})" if someone.pid else ""
        return f"Worker {someone.worker}{process}{at}"
    if someone.tasks:
        return f"Tasks {format_ranks(someone.tasks)}{at}"
    if someone.local >= 0:
        return f"The process with local rank {someone.local}{at}"
    if someone.task >= 0:
        return f"Task {someone.task}{at}"
    if someone.processes:
        return f"{someone.processes} processes{at}"
    if someone.pid:
        return f"Process {someone.pid}{on_devices(someone)}{at}"
    on_gpu = f" with GPU {format_ranks(someone.devices)}" if someone.devices else ""
    where = (
        f"(the log does not show which; its file is {someone.file})" if someone.file else NO_RANK
    )
    return f"A rank{on_gpu}{at} {by_lines(someone.beside) or where}"


def by_lines(beside: str) -> str:
    """``(rank 9, by the lines beside it)``; "" where they name nobody."""
    return f"({beside}, by the lines beside it)" if beside else ""


def on_devices(someone: Someone) -> str:
    """`` (devices 3-4)``; "" where the line names none."""
    if not someone.devices:
        return ""
    return f" ({choose(someone.devices, 'device', 'devices')} {format_ranks(someone.devices)})"


@stories.tell.register
def _(story: NodeFailed, finding: Finding) -> str:
    if not story.nodes:
        return "Slurm ended the job for the failure of a node that the log does not name"
    ranks = f" with {terms.ranks(finding.ranks)}" if finding.ranks else ""
    failed = f"{terms.the_nodes(story.nodes)}{ranks} failed"
    it = choose(story.nodes, "it", "them")
    if story.by == "Open MPI":
        return f"{failed}, or the network to {it}: Open MPI lost it"
    and_job = " and ended the job" if story.by == "Slurm" else ""
    return f"{failed}: {story.by} lost {it}{and_job}"


@stories.tell.register
def _(story: PeerGone, finding: Finding) -> str:
    ranks = f" ({terms.ranks(finding.ranks)})" if finding.ranks else ""
    by = f"{terms.ranks(story.by)} lost" if story.by else "others lost"
    return f"{terms.capital(by)} the connection to host {story.peer}{ranks} first, and nothing came before in the log: a process there had ended, or the network to it broke"


@stories.tell.register
def _(story: LinkBroken, finding: Finding) -> str:
    if not (story.by or story.hosts or story.peers):
        return terms.capital(story.meaning)
    someone = "ranks" if len(story.hosts) > 1 else "a rank"
    if story.processes > 1 and len(story.hosts) < 2:
        someone = f"{story.processes} processes"
    if story.process:
        someone = _process_of(story)
    if story.first_sign:
        someone = "processes" if len(story.hosts) > 1 else _process_of(story)
    someone += f" {by_lines(story.beside)}" if story.beside else ""
    by = terms.ranks(story.by) if story.by else someone
    by += f" on {terms.host_names(story.hosts)}" if story.hosts else ""
    peers = terms.host_names(list(story.peers)) if story.peers else "another process"
    none = ", and these logs show no failure before it" if story.first_sign else ""
    return f"Between {by} and {peers}: {story.meaning}{none}"


def _process_of(story: LinkBroken) -> str:
    """``process 812 (device 3)``; whose line it is may not show."""
    if not story.process:
        return "a process"
    return f"process {story.process}{on_devices(Someone(devices=story.devices))}"


@stories.tell.register
def _(story: TookNothing, finding: Finding) -> str:
    by = terms.ranks(story.by)
    return f"{who_of(finding)} took no message of {by} until {story.library}'s time limit: stopped, dead, or cut off from them"


@stories.tell.register
def _(story: TooFewJoined, finding: Finding) -> str:
    came, absent = terms.ranks(story.came), set(range(story.expected)) - set(story.came)
    if story.each > 1:
        numbers = f"{came}, {story.each} of them by each number, and none {terms.ranks(absent)}"
        return f"The job's {story.expected} processes call themselves {numbers}: its nodes count from the same rank"
    if story.joined < 0:
        shown = f"it shows {came}, and not {terms.ranks(absent)}"
        return (
            f"Not all of the job's {story.expected} processes had come where the log ends: {shown}"
        )
    if finding.ranks:
        have = choose(finding.ranks, "it has", "they have")
        why = f"{have} no black box, all others do"
        if story.unheard:
            why = f"{choose(finding.ranks, 'it', 'they')} printed nothing, all others did"
        missed = f"never came to the rendezvous{_within(story.seconds)}"
        if story.still:
            missed = f"{choose(finding.ranks, 'has', 'have')} not come to the rendezvous where the log ends"
        return f"{subject(finding)} {missed}: {why}"
    missed = f"did not come to the rendezvous{_within(story.seconds)}"
    if story.still:
        missed = "have not come to the rendezvous where the log ends"
    every = f"{story.expected} {choose(story.expected, 'process', 'processes')}"
    which = "the log does not show which"
    if story.came:
        which = f"{came} did, and {which} did not"
    return f"{story.expected - story.joined} of {every} {missed}; {which}"


def _within(seconds: float) -> str:
    return f" within {terms.duration(seconds)}" if seconds else ""


@stories.tell.register
def _(story: TooManyJoined, finding: Finding) -> str:
    if story.beyond:
        came = f"{terms.ranks(story.beyond)} {choose(story.beyond, 'is', 'are')} among them"
        return f"{story.joined} processes came to the rendezvous of a job of {story.expected}, and {came}: WORLD_SIZE is set too small"
    return (
        f"{story.joined} processes came to the rendezvous of a job of {story.expected}: "
        "its store still has those of an earlier start"
    )


@stories.tell.register
def _(story: StoreHostGone, finding: Finding) -> str:
    waiting = (
        f"{terms.are(story.waiting)} waiting for it" if story.waiting else "others wait for it"
    )
    if story.quiet:
        return f"{who_of(finding)} had ended before the others were done, and raised nothing: {terms.ranks(story.waiting)} lost the rendezvous store that it holds"
    if story.gone:
        return f"{who_of(finding)} was gone first: {waiting} in the store, and the connection broke"
    return f"{who_of(finding)} {choose(finding.ranks, 'has', 'have')} not set up communication: {waiting} in the store"


@stories.tell.register
def _(story: NamedByTorch, finding: Finding) -> str:
    by = {
        "desync": "torch's desync report",
        "barrier": "monitored_barrier",
        "store": "the store",
        "horovod": "Horovod's list of stalled operations",
        "ray": "Ray Train's word on who keeps the others waiting",
        "ucc": "UCC's own check",
        "jax": "JAX's coordinator",
        "lightgbm": "others try in vain to connect to it",
    }
    if story.by == "jax" and finding.kind == "start_stall":
        return f"{who_of(finding)} never registered with JAX's coordinator"
    what = terms.op(story.op) if story.op.name else _unnamed(story.op.seq)
    source = "" if story.op.name == by[story.by] else f" ({by[story.by]})"
    return f"{who_of(finding)} never joined {what}{source}"


@stories.tell.register
def _(story: SubmittedApart, finding: Finding) -> str:
    in_each = [f"{terms.ranks(ranks)} in {terms.cut(name, 50)}" for name, ranks in story.sides]
    more = story.number - len(in_each)
    rest = f" and {more} more operations" if more > 0 else ""
    none = (
        f"; {terms.ranks(story.neither)} {choose(story.neither, 'is', 'are')} in none of them"
        if story.neither
        else ""
    )
    return f"Ranks made different calls, and which of them is wrong does not show: {', '.join(in_each)}{rest} wait for the others{none} (Horovod's list of stalled operations)"


def _unnamed(seq: int) -> str:
    return f"operation #{seq}" if seq >= 0 else "what the others wait in"


@stories.tell.register
def _(story: FewerCalls, finding: Finding) -> str:
    last = f"#{story.enqueued}" if story.enqueued >= 0 else "none"
    its = choose(finding.ranks, "its last one is", "their last ones are at most")
    return f"{who_of(finding)} never enqueued {terms.op(story.op)}; {its} {last}"


@stories.tell.register
def _(story: DidNotTimeOut, finding: Finding) -> str:
    heard = (
        ""
        if story.heard
        else f"; {choose(finding.ranks, 'it is', 'they are')} not in the log at all"
    )
    if story.counting:
        return f"{who_of(finding)} did not come to {terms.op(story.op)} within the others' time limit, and was at work: the log goes on to '{terms.tail(story.counting, 60)}'"
    return f"{who_of(finding)} did not wait in {terms.op(story.op)} as all others did{heard}"


@stories.tell.register
def _(story: StillCounted, finding: Finding) -> str:
    at = f" in {terms.frame(finding.frame)}" if finding.frame is not None else ""
    return f"{who_of(finding)} was still at work{at} when the job was ended: the log had come to '{terms.tail(story.last.says, 60)}' ({story.last.file}:{story.last.line})"


@stories.tell.register
def _(story: TookLonger, finding: Finding) -> str:
    took = choose(finding.ranks, "of its work took", "of their work took up to")
    limit = f"{terms.op(story.op)}, where the others' time limit is {terms.duration(story.limit_s)}"
    part = f"'{terms.tail(story.says, 50)}', {story.at}"
    if story.late:
        return f"{who_of(finding)} came too late to {limit}: by a line of its own it slept or was late for {terms.duration(story.seconds)} before ({story.at})"
    return f"{who_of(finding)} came too late to {limit}: one part {took} {terms.duration(story.seconds)} ({part})"


@stories.tell.register
def _(story: StillPreparing, finding: Finding) -> str:
    waiters = finding.waiters.ranks if finding.waiters is not None else ()
    others = terms.ranks(waiters) if waiters else "others"
    where = f" in {terms.op(story.op)}" if story.op.name else ""
    bar = f"'{terms.both_ends(_BAR.sub(' ', story.says), 90)}', {story.at}"
    if story.alone:
        return f"{who_of(finding)} was still at work when {others} had waited{where} to the time limit, and had begun as they did ({bar})"
    return f"{who_of(finding)} was still making its data ready when {others} had waited{where} to the time limit ({bar})"


@stories.tell.register
def _(story: OtherCall, finding: Finding) -> str:
    my_size, their_size = terms.cut(story.my_size, _SIZE), terms.cut(story.their_size, _SIZE)
    mine = " ".join(p for p in (terms.op(story.mine), my_size) if p)
    theirs = " ".join(p for p in (terms.op(story.theirs), their_size) if p)
    if story.pair:
        same = story.mine == story.theirs and my_size and their_size
        what = "an operation with different sizes" if same else "different operations"
        ahead = ""
        if story.mine.name == story.theirs.name and story.mine.seq != story.theirs.seq:
            what = "operations with different numbers"
            ahead = (
                f", so that one is {count(abs(story.mine.seq - story.theirs.seq), 'call')} ahead"
            )
        who = who_of(finding) if finding.ranks else "Two ranks of a group"
        return f"{who} run {what}: {mine} and {theirs}{ahead}; which of them is wrong does not show"
    return f"{who_of(finding)} ran {mine} where the others ran {theirs}"


@stories.tell.register
def _(story: AllWaited, finding: Finding) -> str:
    return f"All ranks ({terms.ranks(story.ranks)}) timed out in {terms.op(story.op)} with equal counters: {stories.blameless(finding)}"


@stories.tell.register
def _(story: GuardFound, finding: Finding) -> str:
    step = f" at step {story.iteration}" if story.iteration >= 0 else ""
    was = choose(finding.ranks, "was", "were")
    return f"{who_of(finding)} {was} in {story.place}{step}, by the program's own guard"


@stories.tell.register
def _(story: InterruptedIn, finding: Finding) -> str:
    where = terms.frame(finding.frame) if finding.frame is not None else "its own code"
    was = choose(finding.ranks, "was", "were")
    others = f"{terms.ranks(story.others)} waited in a collective"
    return f"{who_of(finding)} {was} in {where} when the job was interrupted, while {others}"


@stories.tell.register
def _(story: PrintedLess, finding: Finding) -> str:
    others = f"{terms.ranks(story.others)} printed step {story.furthest}"
    return (
        f"{who_of(finding)} printed step {story.step} last, while {others}, and then none went on"
    )
