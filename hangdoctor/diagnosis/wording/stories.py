"""The first sentence of a verdict: who did or did not do what. One function for each kind of
story.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

from .. import findings as f
from ..findings import Finding
from ..findings.log_stories import LogStory
from . import differences, terms
from .differences import subject
from .terms import choose


def blameless(finding: Finding) -> str:
    """What is left where no rank is to blame."""
    return "network, gloo or a link" if finding.gloo else "network, NCCL, link or GPU"


def head(finding: Finding) -> str:
    """``Rank 5 (n2, pid 7791) never reached all_reduce #12``, without a full stop."""
    return tell(finding.story, finding)


def says_where(finding: Finding) -> bool:
    """Whether the head says already where the ranks are."""
    if isinstance(finding.story, f.HoldsLock):
        return finding.story.op is not None
    return isinstance(
        finding.story,
        LogStory
        | f.AllIn
        | f.HeldBehind
        | f.NoneLeaves
        | f.OtherStore
        | f.StoreRefused
        | f.OtherPort
        | f.NotAtRendezvous
        | f.NoWayToRendezvous
        | f.SameNodeRank
        | f.StillImporting
        | f.InOther
        | f.PeerElsewhere
        | f.HoldsGil
        | f.ForkedLock
        | f.StillIn
        | f.LockedBy
        | f.LockRing
        | f.LeftLock,
    )


def _is(finding: Finding) -> str:
    return choose(finding.ranks, "is", "are")


def _has(finding: Finding) -> str:
    return choose(finding.ranks, "has", "have")


@singledispatch
def tell(story: object, finding: Finding) -> str:
    """The head of a kind of story; a module registers its own."""
    raise TypeError(f"no words for {type(story).__name__}")


def _by_kind(finding: Finding) -> str:
    """The head where the kind alone says what a rank does; "" of other kinds."""
    who = subject(finding)
    if finding.kind == "data_wait":
        return (
            f"{who} {_is(finding)} waiting for {choose(finding.ranks, 'its', 'their')} data loader"
        )
    if finding.kind == "checkpoint_wait":
        return f"{who} {_is(finding)} still in a checkpoint"
    if finding.kind == "slow":
        return f"{who} {_is(finding)} late but moving"
    if finding.kind == "unreachable":
        return f"{who} cannot be seen"
    if finding.kind == "io_wait":
        return f"{who} {_is(finding)} in uninterruptible I/O (state D)"
    if finding.kind == "interpreter_lock":
        return f"{who} cannot run Python: the GIL or an inherited lock is held"
    return ""


@tell.register
def _(story: f.NeverReached, finding: Finding) -> str:
    known = _by_kind(finding)
    if known:
        return known
    who = subject(finding)
    if story.op is None:
        computes = choose(finding.ranks, "is computing", "are computing")
        idles = choose(finding.ranks, "makes no progress", "make no progress")
        return f"{who} {computes if finding.kind == 'busy' else idles} outside any collective or send/recv"
    return f"{who} never reached {terms.op(story.op)}"


@tell.register
def _(story: f.NeverPosted, finding: Finding) -> str:
    missing = "recv" if "send" in story.op.name else "send"
    known = _by_kind(finding)
    if known:
        return known
    return f"{subject(finding)} never posted the {missing} that matches {terms.short_op(story.op)} of rank {story.by}"


@tell.register
def _(story: f.NeverStarted, finding: Finding) -> str:
    gpu = choose(finding.ranks, "its GPU has", "their GPUs have")
    if story.ended_at:
        others = f"{terms.ranks(story.ended_at)} {choose(story.ended_at, 'has', 'have')}"
        op = terms.op(story.op)
        return f"{subject(finding)} enqueued {op}, but {gpu} not completed it; {others}"
    return f"{subject(finding)} enqueued {terms.op(story.op)}, but {gpu} not started it"


@tell.register
def _(story: f.NotJoined, finding: Finding) -> str:
    verb = "reached" if finding.kind == "end_stall" else "joined"
    text = f"{subject(finding)} {_has(finding)} not {verb} {terms.op(story.op)}"
    return f"{text}: {story.why}" if story.why else text


@tell.register
def _(story: f.OtherStore, finding: Finding) -> str:
    looks = choose(finding.ranks, "looks", "look")
    reached = choose(story.reached, "1 rank has", f"{story.reached} ranks have")
    return f"{subject(finding)} {looks} for the store at {story.own}; {reached} reached it at {story.theirs}"


@tell.register
def _(story: f.StoreRefused, finding: Finding) -> str:
    return f"{subject(finding)} cannot reach the store at {story.where}: {story.why}"


@tell.register
def _(story: f.StillImporting, finding: Finding) -> str:
    source = f", from {story.mount} ({story.filesystem})" if story.mount else ""
    if story.computes:
        source = ", using the CPU"
    module = story.module or "a module"
    return f"{subject(finding)} {_is(finding)} still importing {module} after {terms.duration(story.seconds)}{source}"


@tell.register
def _(story: f.NoProcessThere, finding: Finding) -> str:
    has = choose(story.nodes, "has", "have")
    nodes = terms.host_names(story.nodes)
    return f"{terms.capital(terms.ranks(finding.ranks))} never started: {nodes} {has} no process of this job"


@tell.register
def _(story: f.Died, finding: Finding) -> str:
    if story.end.code == 0:
        return f"{subject(finding)} {_has(finding)} ended (exit code 0)"
    return f"{subject(finding)} {_is(finding)} dead: {terms.end(story.end)}"


@tell.register
def _(story: f.Stopped, finding: Finding) -> str:
    who = f"{subject(finding)} {_is(finding)}"
    if story.how == "freezer":
        return f"{who} frozen by the cgroup freezer"
    if story.how == "debugger":
        return f"{who} stopped by a debugger" + (
            f" (process {story.tracer})" if story.tracer else ""
        )
    return f"{who} stopped (SIGSTOP)"


@tell.register
def _(story: f.InputOutput, finding: Finding) -> str:
    where = f", in {story.call}" if story.call else ""
    kernel = f", kernel wait {story.wchan}" if story.wchan else ""
    return f"{subject(finding)} {_is(finding)} in uninterruptible I/O (state D){where}{kernel}"


@tell.register
def _(story: f.HoldsGil, finding: Finding) -> str:
    at = f" in {terms.frame(story.frame)}" if story.frame is not None else ""
    who = f"{subject(finding)} cannot run Python: {terms.thread(story.name, story.tid)}"
    if story.runs:
        return f"{who} holds the GIL and is at work{at}"
    return f"{who} holds the GIL{at} and does not release it"


@tell.register
def _(story: f.ShutDown, finding: Finding) -> str:
    remains = choose(finding.ranks, "its process remains", "their processes remain")
    if story.op is None:
        left = f"{_is(finding)} at the end of {choose(finding.ranks, 'its', 'their')} program"
        return f"{subject(finding)} {left}: Python has shut down, but {remains}"
    programs = choose(finding.ranks, "its program is", "their programs are")
    over = f"{programs} over (Python has shut down), but {remains}"
    return f"{subject(finding)} never reached {terms.op(story.op)}: {over}"


@tell.register
def _(story: f.ForkedLock, finding: Finding) -> str:
    lock = f"a lock in {terms.frame(story.frame)} that no thread in it can release"
    return f"{subject(finding)} cannot continue: its forked child {story.child} waits for {lock}"


@tell.register
def _(story: f.AllIn, finding: Finding) -> str:
    entered = f"entered {terms.op(story.op)}" if story.counted else f"are in {terms.op(story.op)}"
    left = blameless(finding)
    if story.partners:
        return _of_one_in_all(story, finding, left)
    if story.sides:
        return _of_two_sides(story, left)
    text = f"All members ({terms.ranks(story.members)}) {entered} and it does not finish: {left}"
    return text if story.counted else f"{text}, or a rank made one call too many or too few"


def _of_one_in_all(story: f.AllIn, finding: Finding, left: str) -> str:
    """Several transfers that one rank has part in."""
    partners = terms.ranks(story.partners)
    text = f"{subject(finding)} is in all transfers that do not finish: with {partners}"
    return f"{text}, who entered them too. Its tags may differ from theirs, or it is {left}"


def _of_two_sides(story: f.AllIn, left: str) -> str:
    """A send and its recv; Flight Recorder dumps have no tags."""
    entered = "entered it" if story.counted else "are in it"
    both = f"Both sides of {terms.op(story.op)} ({terms.ranks(story.members)}) {entered}"
    differ = "tags that differ" if story.counted else "tags or sizes that differ"
    causes = left if story.one_tag else f"{differ}, or {left}"
    text = f"{both} and it does not finish: {causes}"
    return text if story.counted else f"{text}, or a send or recv too many"


@tell.register
def _(story: f.HeldBehind, finding: Finding) -> str:
    past, have = terms.ranks(story.past), terms.choose(story.past, "has", "have")
    stuck = f"{subject(finding)} {_is(finding)} stuck in {terms.op(story.op)}"
    return f"{stuck}, which {past} {have} already completed"


@tell.register
def _(story: f.NoneLeaves, finding: Finding) -> str:
    text = f"All ranks ({terms.ranks(finding.ranks)}) are in {terms.op(story.op)} and it does not finish"
    if story.later:
        return _later_groups(story, text)
    return (
        f"{text}: no rank is missing, so they probably cannot reach each other"
        if story.starting
        else text
    )


def _later_groups(story: f.NoneLeaves, text: str) -> str:
    """The ranks have reached one another before: they do not agree on the groups."""
    if story.sides:
        each = terms.in_operations(story.sides)
        return (
            f"All ranks wait for new groups: {each}; they do not make the same groups in one order"
        )
    return (
        f"{text}: the job is connected, so ranks may make other groups there, or in another order"
    )


@tell.register
def _(story: f.StillIn, finding: Finding) -> str:
    what = terms.op(story.op) if story.op.name or story.op.seq >= 0 else "its own code"
    if not story.op.name and story.op.frame is not None:
        what = terms.frame(story.op.frame)
    verb = f"{_has(finding)} gone on to" if story.left else f"{_is(finding)} still in"
    rest = []
    if story.ended:
        rest.append(f"{terms.have(story.ended)} ended")
    if story.leaving and story.leaving_op is not None:
        rest.append(f"{terms.are(story.leaving)} in {terms.op(story.leaving_op)}")
    others = " and ".join(rest) or "the other ranks have ended"
    return f"{subject(finding)} {verb} {what}; {others}"


@tell.register
def _(story: f.LeftWithout, finding: Finding) -> str:
    return f"{subject(finding)} ended the training cleanly and never entered {terms.op(story.op)}"


@tell.register
def _(story: f.PeerElsewhere, finding: Finding) -> str:
    missing = "recv" if "send" in story.op.name else "send"
    needs = f"never posts the {missing} that matches the {story.op.name} of rank {story.waiter}"
    return f"{subject(finding)} {needs}; it is in {terms.op(story.own)}"


@tell.register
def _(story: f.InOther, finding: Finding) -> str:
    return differences.in_other(story, finding)


@tell.register
def _(story: f.NotStarted, finding: Finding) -> str:
    why = "; ".join(story.whys)
    if not finding.ranks:
        return f"The job has not started: {why}"
    return f"{terms.capital(terms.ranks(finding.ranks))} {_has(finding)} not started: {why}"


@tell.register
def _(story: f.NotSeen, finding: Finding) -> str:
    why = "; ".join(story.whys) or "no records"
    return f"{terms.capital(terms.ranks(finding.ranks))} cannot be seen: {why}"


def _member(finding: Finding, members: f.OwnNumbers | None) -> str:
    """The job's ranks, else members of a communicator with their processes."""
    if members is None:
        return terms.ranks(finding.ranks)
    of = f"{terms.ranks(members.ranks)} of communicator {members.communicator} (its own numbering"
    return f"{of}; {_processes(members.processes)})" if members.processes else f"{of})"


@tell.register
def _(story: f.LostByRas, finding: Finding) -> str:
    told = story.members is not None and story.members.processes
    where = f" on {', '.join(story.hosts)}" if story.hosts and not told else ""
    lost = f"{_member(finding, story.members)}{where}"
    return f"NCCL RAS has lost {lost}; the other ranks of the communicator wait"


@tell.register
def _(story: f.ErrorByRas, finding: Finding) -> str:
    told = story.members is not None and story.members.processes
    where = f" on {terms.host_names(finding.nodes)}" if finding.nodes and not told else ""
    who = terms.capital(_member(finding, story.members))
    return f"{who}{where} failed first: {says_ras(story)} (NCCL RAS)"


@tell.register
def _(story: f.LostProcesses, finding: Finding) -> str:
    return f"{terms.capital(says_ras(story))}; the other processes wait"


@tell.register
def _(story: f.FewerByRas, finding: Finding) -> str:
    who = terms.capital(_member(finding, story.members))
    if story.ahead:
        return f"{who} {says_ras(story)} (NCCL RAS): one of the two sides made other calls"
    return f"{who} {says_ras(story)} (NCCL RAS): {choose(_numbers(finding, story.members), 'it has', 'they have')} not reached the next one"


def _numbers(finding: Finding, members: f.OwnNumbers | None) -> Sequence[int]:
    return finding.ranks if members is None else members.ranks


def says_ras(story: f.LostByRas | f.LostProcesses | f.FewerByRas | f.ErrorByRas) -> str:
    """What NCCL RAS reported, without the ranks."""
    if isinstance(story, f.LostByRas):
        where = f" on {', '.join(story.hosts)}" if story.hosts else ""
        of = f" of communicator {story.members.communicator}" if story.members else ""
        return f"NCCL RAS has lost the process{where}{of}"
    if isinstance(story, f.LostProcesses):
        verb = "has given up on" if story.dead else "gets no answer from"
        return f"NCCL RAS {verb} {_processes(story.processes)}"
    if isinstance(story, f.ErrorByRas):
        return f"NCCL reports {_error(story.error)}"
    launched = f"launched {story.launched} {story.op or 'operations'}"
    if not story.ahead:
        return f"{launched}, fewer than the others"
    ahead = f"{terms.ranks(story.ahead)} {choose(story.ahead, 'is', 'are')} ahead"
    return f"{launched}; {ahead} with {story.ahead_at}"


_NUMBERED = {
    "1": "unhandled cuda error",
    "2": "unhandled system error",
    "3": "internal error",
    "4": "invalid argument",
    "5": "invalid usage",
}


def _error(text: str) -> str:
    """NCCL's error; of a number, as JSON has it, what it means."""
    meaning = _NUMBERED.get(text.rpartition("_error ")[2], "")
    return f"{text} ({meaning})" if meaning else text


_SHOWN = 3  # processes that a sentence names


def _processes(processes: Sequence[tuple[str, int, str]]) -> str:
    named = [
        f"process {pid}" + (f" (GPU {gpu})" if gpu else "") + (f" on {host}" if host else "")
        for host, pid, gpu in processes[:_SHOWN]
    ]
    more = len(processes) - _SHOWN
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


@tell.register
def _(story: f.UnsetKey, finding: Finding) -> str:
    if story.instead is not None:
        others = f"{terms.ranks(story.waiting)} wait for {story.keys} in the store, which no rank has set"
        return f"{subject(finding)} is in {terms.op_at(story.instead)}, but {others}"
    return f"{subject(finding)} {choose(finding.ranks, 'waits', 'wait')} for {story.keys} in the store, which no rank has set"


@tell.register
def _(story: f.Disagrees, finding: Finding) -> str:
    return differences.disagrees(story, finding)


@tell.register
def _(story: f.Diverged, finding: Finding) -> str:
    return differences.diverged(story, finding)


@tell.register
def _(story: f.OtherPartners, finding: Finding) -> str:
    return differences.other_partners(story, finding)


@tell.register
def _(story: f.Ring, finding: Finding) -> str:
    if story.mine is not None and story.theirs is not None:
        calls = f"one {terms.op_at(story.mine)} where another made {terms.op_at(story.theirs)}"
        return f"{subject(finding)} made different calls, {calls}; the records do not show which is wrong"
    return f"{subject(finding)} wait for one another in a ring; the records do not show which made a wrong call"


@tell.register
def _(story: f.OneOf, finding: Finding) -> str:
    unseen = f" ({terms.ranks(story.unseen)} left no dump)" if story.unseen else ""
    one = "One of " + terms.ranks(finding.ranks)
    return f"{one} blocks the others{unseen}: gloo's recorder has no sends and receives, so one of these may be waiting for another"


@tell.register
def _(story: f.SlowByWaiting, finding: Finding) -> str:
    times = f"the others spend {terms.share(story.others)} of their time waiting, this one {terms.share(story.own)}"
    return f"{subject(finding)} is slow: the job goes on, but {times}"


@tell.register
def _(story: f.SlowBySamples, finding: Finding) -> str:
    seen = f"in all {story.samples} samples over {terms.duration(story.seconds)}"
    are = terms.choose(finding.ranks, "it was", "they were")
    return f"{subject(finding)} {_is(finding)} slow: the job goes on, but {seen} {are} at work while all others waited"


@tell.register
def _(story: f.SlowByArrival, finding: Finding) -> str:
    times = f"the others wait for it {terms.share(story.share)} of the time: it comes {terms.duration(story.seconds)} after them"
    return f"{subject(finding)} is slow: the job goes on, but {times}"


@tell.register
def _(story: f.SlowByPace, finding: Finding) -> str:
    return f"{subject(finding)} is slow: the job goes on, but it takes {story.times:.1f} times as long as others in each call"


@tell.register
def _(story: f.SlowByHistory, finding: Finding) -> str:
    over = terms.duration(story.seconds)
    times = f"over {over} it waited {story.own:.0f} % of its time, the others {story.least:.0f} % or more"
    return f"{subject(finding)} is slow: the job goes on, but the others wait for it ({times})"
