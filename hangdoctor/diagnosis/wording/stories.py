"""The first sentence of a verdict: who did or did not do what. One function for each kind of
story.
"""

from __future__ import annotations

from functools import singledispatch

from ...text.ranges import format_ranks
from .. import findings as f
from ..findings import Finding
from ..findings.log_stories import LogStory
from . import differences, terms
from .differences import subject
from .terms import choose


def blameless(finding: Finding) -> str:
    """What is left where no rank is to blame."""
    if finding.no_recorder and not finding.gloo:
        return "network, library, link or device"
    return "network, gloo or a link" if finding.gloo else "network, NCCL, link or GPU"


def head(finding: Finding) -> str:
    """``Rank 5 (n2, pid 7791) never reached all_reduce #12``, without a full stop."""
    return tell(finding.story, finding)


def says_where(finding: Finding) -> bool:
    """Whether the head says already where the ranks are."""
    if isinstance(finding.story, f.HoldsLock):
        return finding.story.op is not None
    if isinstance(finding.story, f.UnsetKey):
        return finding.story.instead is not None and finding.story.instead.frame is not None
    if isinstance(finding.story, f.Ring):
        return bool(finding.story.sides) and all(op.site for _, op in finding.story.sides)
    return isinstance(
        finding.story,
        LogStory
        | f.AllIn
        | f.HeldBehind
        | f.PartsApart
        | f.OwnOrder
        | f.NoneLeaves
        | f.OwnGroup
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
        | f.LeftLock
        | f.TwoThreads
        | f.OtherTag
        | f.OtherRoot
        | f.StepsApart
        | f.AmountApart
        | f.UnmatchedPair
        | f.Compiling
        | f.Interrupted
        | f.OwesAnswer
        | f.UnnamedElsewhere
        | f.EndedItself,
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
    instead = ""
    if story.instead is not None:
        they = choose(finding.ranks, "it is", "they are")
        instead = f"; {they} in {terms.op_at(story.instead)}"
    if story.raised:
        return f"{who} left {terms.op_at(story.op)} by an exception that was caught{instead}"
    return f"{who} never reached {terms.op(story.op)}{instead}"


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
def _(story: f.Died, finding: Finding) -> str:
    if story.before_s:
        before = f"{terms.duration(story.before_s)} before the others, which got no further"
        return f"{subject(finding)} ended (exit code 0) {before}"
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
    thread = terms.thread(story.name, story.tid) if len(finding.ranks) == 1 else "a thread of each"
    who = f"{subject(finding)} cannot run Python: {thread}"
    beside = f", as on {terms.ranks(story.beside)}" if story.beside else ""
    if story.runs:
        return f"{who} holds the GIL and is at work{at}{beside}"
    return f"{who} holds the GIL{at} and does not release it{beside}"


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
    if story.tags:
        (one, tag), (other, its) = story.tags
        return f"{both} with different tags: rank {one} with {tag}, rank {other} with {its}; which is wrong does not show"
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
def _(story: f.OwnOrder, finding: Finding) -> str:
    mine, theirs = format_ranks(story.mine), format_ranks(story.theirs)
    call = f"{subject(finding)} is in {story.op.name} for ranks {mine}"
    return f"{call}, while {terms.ranks(story.waiting)} wait for it in that for ranks {theirs}: it makes its groups in another order"


@tell.register
def _(story: f.PartsApart, finding: Finding) -> str:
    first = story.pairs[0]
    text = f"{subject(finding)} disagree{terms.choose(finding.ranks, 's', '')} about {terms.op(story.op)}"
    if len(story.pairs) > 1 and len(finding.ranks) == 1:
        others = {r for one in story.pairs for r in (one.sender, one.receiver)} - {*finding.ranks}
        text = f"{text} with {terms.ranks(sorted(others))}"
    return f"{text}: {terms.part_apart(first)}"


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


@tell.register
def _(story: f.UnsetKey, finding: Finding) -> str:
    if story.instead is not None:
        others = f"{terms.ranks(story.waiting)} {choose(story.waiting, 'waits', 'wait')} for {story.keys} in the store, which no rank has set"
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
def _(story: f.OtherRound, finding: Finding) -> str:
    return differences.other_round(story, finding)


@tell.register
def _(story: f.Ring, finding: Finding) -> str:
    if story.mine is not None and story.theirs is not None:
        calls = f"one {terms.op_at(story.mine)} where another made {terms.op_at(story.theirs)}"
        return f"{subject(finding)} made different calls, {calls}; the records do not show which is wrong"
    if story.sides:
        return differences.both_sides(story, finding)
    if story.each:
        return f"{subject(finding)} wait for one another: {terms.in_operations(story.each)}"
    return f"{subject(finding)} wait for one another in a ring; the records do not show which made a wrong call"


@tell.register
def _(story: f.OneOf, finding: Finding) -> str:
    unseen = f" ({terms.ranks(story.unseen)} left no dump)" if story.unseen else ""
    one = "One of " + terms.ranks(finding.ranks)
    return f"{one} blocks the others{unseen}: gloo's recorder has no sends and receives, so one of these may be waiting for another"


@tell.register
def _(story: f.SlowByWaiting, finding: Finding) -> str:
    others, own = terms.share(story.others), terms.share(story.own)
    these = f"{terms.choose(finding.ranks, 'this one', 'these at most')} {own}"
    if finding.over:
        was = terms.choose(finding.ranks, "was", "were")
        times = f"the others spent {others} of their time waiting, {these}"
        return f"{subject(finding)} {was} slow: the job went on to its end, but {times}"
    times = f"the others spend {others} of their time waiting, {these}"
    is_are = terms.choose(finding.ranks, "is", "are")
    return f"{subject(finding)} {is_are} slow: the job goes on, but {times}"


@tell.register
def _(story: f.SlowBySamples, finding: Finding) -> str:
    seen = f"in all {story.samples} samples over {terms.duration(story.seconds)}"
    are = terms.choose(finding.ranks, "it was", "they were")
    loads = finding.doing is not None and finding.doing.act == "loading"
    at = (
        f"without data from {terms.choose(finding.ranks, 'its', 'their')} loader"
        if loads
        else "at work"
    )
    slow = f"{subject(finding)} {_is(finding)} slow: the job goes on, but {seen} {are} {at}"
    if story.on_cpu is not None:
        own, most = map(terms.share, story.on_cpu)
        return f"{slow} ({own} CPU, the others at most {most})"
    if story.waited < 1.0:
        return f"{slow}, while the others waited in {terms.share(story.waited)} of theirs"
    return f"{slow} while all others waited"


@tell.register
def _(story: f.SlowByArrival, finding: Finding) -> str:
    share, seconds = terms.share(story.share), terms.duration(story.seconds)
    alone = len(finding.ranks) == 1
    whom, who, all_else = ("it", "it", "them") if alone else ("them", "they", "the others")
    if finding.over:
        was = choose(finding.ranks, "was", "were")
        times = f"the others waited for {whom} {share} of the time: {who} came {seconds} after {all_else}"
        return f"{subject(finding)} {was} slow: the job went on to its end, but {times}"
    come = choose(finding.ranks, "comes", "come")
    times = (
        f"the others wait for {whom} {share} of the time: {who} {come} {seconds} after {all_else}"
    )
    return f"{subject(finding)} {_is(finding)} slow: the job goes on, but {times}"


@tell.register
def _(story: f.SlowByPace, finding: Finding) -> str:
    return f"{subject(finding)} is slow: the job goes on, but it takes {story.times:.1f} times as long as others in each call"


@tell.register
def _(story: f.SlowByHistory, finding: Finding) -> str:
    over = terms.duration(story.seconds)
    times = f"over {over} it waited {story.own:.0f} % of its time, the others {story.least:.0f} % or more"
    return f"{subject(finding)} is slow: the job goes on, but the others wait for it ({times})"
