"""What a piece of evidence says. One function for each kind of fact."""

from __future__ import annotations

from functools import singledispatch

from ...model.diagnosis import Evidence
from ...text.plain import size_words
from ...text.ranges import format_ranks
from .. import findings as f
from . import terms
from .ras_words import says_ras

_THREADS = 4  # of a process, shown one by one


def evidence(clue: f.Clue) -> Evidence:
    """The clue as the report's JSON has it."""
    return Evidence(clue.source, list(clue.ranks), say(clue.fact))


@singledispatch
def say(fact: object) -> str:
    """What a kind of fact says; a module registers its own."""
    raise TypeError(f"no words for {type(fact).__name__}")


@say.register
def _(fact: f.At) -> str:
    shown = " < ".join(terms.long_frame(frame) for frame in fact.frames) or "no stack"
    if fact.own is not None:
        shown = f"{shown} < ... < {terms.long_frame(fact.own)}"
    return f"{shown}: {fact.code}" if fact.code else shown


@say.register
def _(fact: f.NoStack) -> str:
    return f"no stack: {fact.why}" if fact.why else "no stack"


@say.register
def _(fact: f.CannotRun) -> str:
    return f"it is at {terms.long_frame(fact.frame)}, but it cannot run, so this is not the cause"


@say.register
def _(fact: f.ThreadState) -> str:
    kernel = f", kernel wait {fact.wchan}" if fact.wchan else ""
    doing = terms.doing(fact.doing) if fact.doing is not None else "system call unknown"
    return f"state {fact.state}, {_MOTIONS.get(fact.motion, fact.motion)} between the samples{kernel}; {doing}"


_MOTIONS = {
    "still": "did not run",
    "stirred": "ran without progress",
    "looping": "looped",
    "moved": "moved",
    "running": "used the CPU",
    "unknown": "not known whether it moved",
}


@say.register
def _(fact: f.BytesMoved) -> str:
    written, read = size_words(fact.written), size_words(fact.read)
    if fact.received > 0:
        return f"received {size_words(fact.received)} by TCP between the samples"
    return f"wrote {written} and read {read} between the samples"


@say.register
def _(fact: f.StoppedState) -> str:
    if fact.state == "frozen":
        return "its cgroup is frozen"
    return f"state {fact.state} in every sample"


@say.register
def _(fact: f.IdleState) -> str:
    call = f", in {fact.call}" if fact.call else ""
    kernel = f", kernel wait {fact.wchan}" if fact.wchan else ""
    return f"state D in every sample and no CPU time used{call}{kernel}"


@say.register
def _(fact: f.Ended) -> str:
    return f"no living process: {terms.end(fact.end)}"


@say.register
def _(fact: f.InOp) -> str:
    everyone = "; all captured members have entered it" if fact.everyone else ""
    return f"in {terms.long_op(fact.op)}{', not finished' if fact.op.seq >= 0 else ''}{everyone}"


@say.register
def _(fact: f.InStore) -> str:
    reached = f"{len(fact.ranks)} of {fact.world} ranks have reached the store at {fact.where}"
    missing = sorted(set(range(fact.world)) - set(fact.ranks))
    return f"{reached}; missing: {terms.ranks(missing)}" if missing else reached


@say.register
def _(fact: f.WaitsIn) -> str:
    if fact.share < 1.0:
        return f"asleep in collectives in {terms.share(fact.share)} of their samples"
    which = "" if fact.all_still else f"{terms.ranks(fact.still)} "
    still = f"; {which}did not run once between the samples" if fact.still else ""
    return f"in collectives or sends and receives{still}"


@say.register
def _(fact: f.RaisedAtTheEnd) -> str:
    stood = terms.duration(fact.stood_s)
    return f"{fact.said}; raised where it had stood for {stood}, as all processes were killed"


@say.register
def _(fact: f.PrintedAtLimit) -> str:
    return "printed by faulthandler, or by a guard of the program's own, when nothing got on"


@say.register
def _(fact: f.SeenByHeartbeat) -> str:
    return "where the training's thread was by the last heartbeat that the probe wrote into the black box"


@say.register
def _(fact: f.DidNotRun) -> str:
    return "did not run once between the samples"


@say.register
def _(fact: f.IsPast) -> str:
    return f"past it: {terms.long_frame(fact.frame)}"


@say.register
def _(fact: f.LastOp) -> str:
    if fact.op is None:
        return "its records have no operation"
    return f"its last operation is {terms.short_op(fact.op)} ({'finished' if fact.done else 'entered'})"


@say.register
def _(fact: f.NoInterpreter) -> str:
    if fact.shut_down:
        return "no Python interpreter any more: modules of Python are loaded, and it was shut down"
    return "py-spy finds no Python interpreter there, and read the other ranks"


@say.register
def _(fact: f.HasGil) -> str:
    return "it holds the GIL, so its other threads cannot run either"


@say.register
def _(fact: f.HoldsGil) -> str:
    at = f" at {terms.long_frame(fact.frame)}" if fact.frame is not None else ""
    name = f" ({fact.name})" if fact.name else ""
    runs = ", and runs" if fact.runs else ""
    return f"thread {fact.tid}{name} holds the GIL in every sample{at}{runs}"


@say.register
def _(fact: f.BehindThread) -> str:
    which = terms.thread(fact.name, fact.tid)
    samples = f"{fact.count} of {fact.samples} samples"
    return f"{which} had the GIL in {samples}, last at {terms.long_frame(fact.frame)}"


@say.register
def _(fact: f.ForkedLock) -> str:
    return f"its forked child {fact.child} waits for a lock at {terms.long_frame(fact.frame)} and has only one thread"


@say.register
def _(fact: f.ChildDied) -> str:
    how = f" ({terms.end(fact.end)})" if fact.end is not None else ""
    return f"its child {fact.pid} is dead{how}"


@say.register
def _(fact: f.ChildStopped) -> str:
    return f"its child {fact.pid} is stopped"


@say.register
def _(fact: f.ChildAt) -> str:
    state = f" (state {fact.state})" if fact.state else ""
    at = " < ".join(terms.long_frame(frame) for frame in fact.frames)
    return f"its child {fact.pid}{state} is at {at}"


@say.register
def _(fact: f.Threads) -> str:
    shown = [f"{name} at {terms.long_frame(frame)}" for name, frame in fact.threads[:_THREADS]]
    more = f" and {len(fact.threads) - _THREADS} more" if len(fact.threads) > _THREADS else ""
    return f"its other Python threads: {'; '.join(shown)}{more}"


@say.register
def _(fact: f.LockWait) -> str:
    return f"waits for the lock on {fact.path or 'a file'}, which process {fact.pid} holds (/proc/locks)"


@say.register
def _(fact: f.Silence) -> str:
    return "; ".join(fact.whys) or "no records"


@say.register
def _(fact: f.WaitsFor) -> str:
    return f"waits in {terms.long_op(fact.op)} for rank {fact.whom}"


@say.register
def _(fact: f.Unreturned) -> str:
    theirs = terms.partners(fact.sends_to, fact.receives_from)
    return f"makes {terms.long_op(fact.op)}; rank {fact.peer} {theirs} there"


@say.register
def _(fact: f.PartedAt) -> str:
    there = "one round earlier" if fact.own else f"rank {fact.reference} at the same place"
    return (
        f"record {fact.position}: {terms.long_op(fact.mine)}; {there}: {terms.long_op(fact.theirs)}"
    )


@say.register
def _(fact: f.Signed) -> str:
    return f"{', '.join(fact.values)} at {terms.long_frame(fact.site) if fact.site else 'an unrecorded line'}"


@say.register
def _(fact: f.SameSignature) -> str:
    return f"all have entered {terms.long_op(fact.op)} with the same signature"


@say.register
def _(fact: f.AsksFor) -> str:
    return f"makes the group of ranks {format_ranks(fact.members)}"


@say.register
def _(fact: f.PartApart) -> str:
    return terms.part_apart(fact)


@say.register
def _(fact: f.EndedCleanly) -> str:
    return "ended cleanly"


@say.register
def _(fact: f.RasSays) -> str:
    return says_ras(fact.story)


@say.register
def _(fact: f.RasSeesAll) -> str:
    return (
        f"NCCL RAS reaches all {terms.count(fact.number, 'rank')}, which have launched equally many "
        "operations: no process is missing, so it is probably the network, a link or a GPU"
    )


@say.register
def _(fact: f.WaitedShare) -> str:
    if fact.least == fact.most:
        return f"waited {fact.least:.0f} % of the time"
    return f"waited {fact.least:.0f} to {fact.most:.0f} % of the time"


@say.register
def _(fact: f.Pace) -> str:
    if isinstance(fact.story, f.SlowByPace):
        return f"takes at least {fact.story.times:.1f} times as long as the others in each of its calls"
    if isinstance(fact.story, f.SlowByArrival):
        by, share = terms.duration(fact.story.seconds), terms.share(fact.story.share)
        return (
            f"comes last to the collectives, by {by} where it is late; that is {share} of the time"
        )
    own, others = terms.share(fact.story.own), terms.share(fact.story.others)
    return f"{own} of the time spent waiting, the others {others}"


@say.register
def _(fact: f.WaitsInKey) -> str:
    return f"in store_wait for {fact.keys}, not finished"


@say.register
def _(fact: f.Quoted) -> str:
    return fact.text
