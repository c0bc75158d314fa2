"""The first sentence of a verdict: who did or did not do what. One function for each kind of story."""

from __future__ import annotations

from functools import singledispatch

from .. import findings as f
from ..findings import Apart, Finding
from . import terms
from .terms import choose

_BLAMELESS = "network, NCCL, link or GPU"


def head(finding: Finding) -> str:
    """``Rank 5 (n2, pid 7791) never reached all_reduce #12``, without a full stop."""
    return _tell(finding.story, finding)


def subject(finding: Finding) -> str:
    """``Rank 5 (n2, pid 7791)``."""
    return terms.who(finding.ranks, finding.homes, finding.nodes)


def says_where(finding: Finding) -> bool:
    """Whether the head says already where the ranks are."""
    return isinstance(
        finding.story, f.AllIn | f.HeldBehind | f.NoneLeaves | f.InOther | f.PeerElsewhere | f.HoldsGil | f.ForkedLock | f.StillIn
    )  # fmt: skip


def _is(finding: Finding) -> str:
    return choose(finding.ranks, "is", "are")


def _has(finding: Finding) -> str:
    return choose(finding.ranks, "has", "have")


@singledispatch
def _tell(story: object, finding: Finding) -> str:
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


@_tell.register
def _(story: f.NeverReached, finding: Finding) -> str:
    known = _by_kind(finding)
    if known:
        return known
    who = subject(finding)
    if story.op is None:
        return f"{who} {'is computing' if finding.kind == 'busy' else 'makes no progress'} outside any communication"
    return f"{who} never reached {terms.op(story.op)}"


@_tell.register
def _(story: f.NeverPosted, finding: Finding) -> str:
    missing = "recv" if "send" in story.op.name else "send"
    known = _by_kind(finding)
    if known:
        return known
    return f"{subject(finding)} never posted the {missing} for {terms.short_op(story.op)} of rank {story.by}"


@_tell.register
def _(story: f.NeverStarted, finding: Finding) -> str:
    gpu = choose(finding.ranks, "its GPU has", "their GPUs have")
    return f"{subject(finding)} enqueued {terms.op(story.op)}, but {gpu} not started it"


@_tell.register
def _(story: f.NotJoined, finding: Finding) -> str:
    verb = "come to" if finding.kind == "end_stall" else "joined"
    text = f"{subject(finding)} {_has(finding)} not {verb} {terms.op(story.op)}"
    return f"{text}: {story.why}" if story.why else text


@_tell.register
def _(story: f.Died, finding: Finding) -> str:
    if story.end.code == 0:
        return f"{subject(finding)} {_has(finding)} ended (exit code 0)"
    return f"{subject(finding)} {_is(finding)} dead: {terms.end(story.end)}"


@_tell.register
def _(story: f.Stopped, finding: Finding) -> str:
    who = f"{subject(finding)} {_is(finding)}"
    if story.how == "freezer":
        return f"{who} frozen by the cgroup freezer"
    if story.how == "debugger":
        return f"{who} stopped by a debugger" + (
            f" (process {story.tracer})" if story.tracer else ""
        )
    return f"{who} stopped (SIGSTOP)"


@_tell.register
def _(story: f.InputOutput, finding: Finding) -> str:
    where = f", in {story.call}" if story.call else ""
    kernel = f", kernel wait {story.wchan}" if story.wchan else ""
    return f"{subject(finding)} {_is(finding)} in uninterruptible I/O (state D){where}{kernel}"


@_tell.register
def _(story: f.HoldsGil, finding: Finding) -> str:
    at = f" in {terms.frame(story.frame)}" if story.frame is not None else ""
    return f"{subject(finding)} cannot run Python: thread {story.tid} holds the GIL{at} and does not release it"


@_tell.register
def _(story: f.ForkedLock, finding: Finding) -> str:
    lock = f"a lock in {terms.frame(story.frame)} that no thread in it can release"
    return f"{subject(finding)} cannot go on: its forked child {story.child} waits for {lock}"


@_tell.register
def _(story: f.AllIn, finding: Finding) -> str:
    entered = f"entered {terms.op(story.op)}" if story.counted else f"are in {terms.op(story.op)}"
    if story.sides:
        both = f"Both sides of {terms.op(story.op)} ({terms.ranks(story.members)})"
        return f"{both} entered it and it does not finish: {_BLAMELESS}"
    text = (
        f"All members ({terms.ranks(story.members)}) {entered} and it does not finish: {_BLAMELESS}"
    )
    return text if story.counted else f"{text}, or one called it once more or less often"


@_tell.register
def _(story: f.HeldBehind, finding: Finding) -> str:
    past = terms.are(story.past)
    return f"{subject(finding)} {_is(finding)} stuck in {terms.op(story.op)}, which {past} past already"


@_tell.register
def _(story: f.NoneLeaves, finding: Finding) -> str:
    text = f"All ranks ({terms.ranks(finding.ranks)}) are in {terms.op(story.op)} and it does not finish"
    return (
        f"{text}: no rank is missing, so they cannot reach each other" if story.starting else text
    )


@_tell.register
def _(story: f.StillIn, finding: Finding) -> str:
    what = terms.op(story.op) if story.op.name or story.op.seq >= 0 else "its own code"
    if not story.op.name and story.op.frame is not None:
        what = terms.frame(story.op.frame)
    verb = f"{_has(finding)} left into" if story.left else f"{_is(finding)} still in"
    rest = []
    if story.ended:
        rest.append(f"{terms.have(story.ended)} ended")
    if story.leaving and story.leaving_op is not None:
        rest.append(f"{terms.are(story.leaving)} in {terms.op(story.leaving_op)}")
    others = " and ".join(rest) or "the other ranks have ended"
    return f"{subject(finding)} {verb} {what}; {others}"


@_tell.register
def _(story: f.LeftWithout, finding: Finding) -> str:
    return f"{subject(finding)} ended the training cleanly and never entered {terms.op(story.op)}"


@_tell.register
def _(story: f.PeerElsewhere, finding: Finding) -> str:
    missing = "recv" if "send" in story.op.name else "send"
    needs = f"never posts the {missing} for {story.op.name} of rank {story.waiter}"
    return f"{subject(finding)} {needs}; it is in {terms.op(story.own)}"


_HOW = {
    Apart.BEHIND: "most likely it makes a call that they do not",
    Apart.AHEAD: "most likely it skipped that call",
    Apart.SMALLER_SIDE: "in another operation than most",
    Apart.OTHER_GROUP: "the same call on another group",
    Apart.OTHER_LINES: "it came there by other lines of the program",
    Apart.MOST_HAVE_LEFT: "most members are past it",
    Apart.PAST: "they wait in a call that it is past",
}


@_tell.register
def _(story: f.InOther, finding: Finding) -> str:
    own = terms.op(story.op)
    if story.how is Apart.ROOTS:
        roots = ", ".join(f"rank {rank}: {root}" for rank, root in story.roots[:4])
        return f"{subject(finding)} {_is(finding)} in {own} with different roots ({roots})"
    if story.how is Apart.EITHER:
        return _either(story, finding)
    if story.how is Apart.NO_ORDER:
        return f"{subject(finding)} are in different operations; the stacks do not show which side is wrong"
    if story.how is Apart.RING:
        return f"{subject(finding)} wait for one another in {story.op.name}"
    text = f"{subject(finding)} {_is(finding)} in {own}"
    if story.their_op is not None and story.others:
        text += f", {terms.ranks(story.others)} in {terms.op(story.their_op)}"
    return f"{text}: {_HOW[story.how]}"


def _either(story: f.InOther, finding: Finding) -> str:
    ahead = [r for r in finding.ranks if r not in story.others]
    theirs = terms.op(story.their_op) if story.their_op is not None else "an operation"
    return (
        f"{terms.capital(terms.ranks(ahead))} skipped {theirs}, or {terms.ranks(story.others)} called it once too often; "
        f"{terms.are(ahead)} in {terms.op(story.op)}"
    )


@_tell.register
def _(story: f.NotSeen, finding: Finding) -> str:
    why = "; ".join(story.whys) or "no records"
    return f"{terms.capital(terms.ranks(finding.ranks))} cannot be seen: {why}"


@_tell.register
def _(story: f.NoRecords, finding: Finding) -> str:
    return f"{subject(finding)} enqueued all that the others wait for; the records end before what the GPU is at"


def _communicator(name: str) -> str:
    return f" of communicator {name} (its own numbering)" if name else ""


@_tell.register
def _(story: f.LostByRas, finding: Finding) -> str:
    where = f" on {', '.join(story.hosts)}" if story.hosts else ""
    lost = f"{terms.ranks(finding.ranks)}{_communicator(story.communicator)}{where}"
    return f"NCCL RAS has lost {lost}; the other ranks of the communicator wait"


@_tell.register
def _(story: f.FewerByRas, finding: Finding) -> str:
    who = terms.capital(terms.ranks(finding.ranks)) + _communicator(story.communicator)
    return f"{who} {says_ras(story)} (NCCL RAS): {choose(finding.ranks, 'it has', 'they have')} not reached the next one"


def says_ras(story: f.LostByRas | f.FewerByRas) -> str:
    """What NCCL RAS reported, without the ranks."""
    if isinstance(story, f.LostByRas):
        where = f" on {', '.join(story.hosts)}" if story.hosts else ""
        return f"NCCL RAS has lost the process{where}{_communicator(story.communicator)}"
    return f"launched {story.launched} {story.op or 'operations'}, fewer than the others"


@_tell.register
def _(story: f.UnsetKey, finding: Finding) -> str:
    return f"{subject(finding)} {choose(finding.ranks, 'waits', 'wait')} for {story.keys} in the store, which no rank has set"


@_tell.register
def _(story: f.Disagrees, finding: Finding) -> str:
    mine, theirs = ", ".join(story.my_values), ", ".join(story.their_values)
    if story.theirs is None:
        return f"{subject(finding)} entered {terms.op(story.mine)} with {mine}; its earlier calls there differ"
    if story.ground is f.Ground.UNDECIDED:
        return f"{subject(finding)} disagree in {terms.op(story.mine)}: {mine} against {theirs}"
    if story.fields[:1] == ("op",):
        return f"{subject(finding)} entered {terms.op_at(story.mine)} where the others entered {_bare(story.theirs)}"
    return (
        f"{subject(finding)} entered {terms.op(story.mine)} with {mine}, the others with {theirs}"
    )


def _bare(op: f.Op) -> str:
    return f"{op.name} ({terms.site(op.site)})" if op.site else op.name


@_tell.register
def _(story: f.Diverged, finding: Finding) -> str:
    who, mine, theirs = subject(finding), terms.op_at(story.mine), terms.op_at(story.theirs)
    if story.before_records:
        way = "behind" if story.how == "skipped" else "ahead of"
        return f"{who} got out of step before the records begin: its {mine} is {way} {theirs} of rank {story.reference}"
    if story.how == "own":
        return f"{who} entered {mine}, where it came to {theirs} in each round before"
    if story.how == "skipped":
        return f"{who} skipped {theirs} and went on to {mine}"
    if story.how == "extra":
        return (
            f"{who} made one call too many, {mine}, where rank {story.reference} came to {theirs}"
        )
    if story.how == "group":
        return f"{who} entered {mine} on another group than rank {story.reference}: {theirs}"
    return f"{who} entered {mine} where rank {story.reference}, which has the same role, entered {theirs}"


@_tell.register
def _(story: f.Ring, finding: Finding) -> str:
    return f"{subject(finding)} wait for one another in a ring; the records do not show which made a wrong call"


@_tell.register
def _(story: f.OneOf, finding: Finding) -> str:
    unseen = f" ({terms.ranks(story.unseen)} left no dump)" if story.unseen else ""
    one = "One of " + terms.ranks(finding.ranks)
    return f"{one} blocks the others{unseen}: gloo's recorder leaves sends and receives out, so one may wait for another"


@_tell.register
def _(story: f.SlowByWaiting, finding: Finding) -> str:
    times = f"the others spend {terms.share(story.others)} of their time waiting, this one {terms.share(story.own)}"
    return f"{subject(finding)} is slow: the job goes on, but {times}"


@_tell.register
def _(story: f.SlowByPace, finding: Finding) -> str:
    return f"{subject(finding)} is slow: the job goes on, but it takes {story.times:.1f} times as long as others in any call"


@_tell.register
def _(story: f.SlowByHistory, finding: Finding) -> str:
    over = terms.duration(story.seconds)
    times = f"over {over} it waited {story.own:.0f} % of its time, the others {story.least:.0f} % or more"
    return f"{subject(finding)} is slow: the job goes on, but the others wait for it ({times})"
