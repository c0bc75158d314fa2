"""What is said of ranks that stacks alone show: two threads in collectives, a transfer's two sides, a
compiler, a loop of the program's own; and what to do about them.
"""

from __future__ import annotations

from .. import findings as f
from ..findings import Finding
from . import terms
from .advice import by_story, count
from .differences import subject
from .stories import tell

_NAMES = 3  # variables that are said
_HINTS = {
    "XLA": "JAX_EXPLAIN_CACHE_MISSES=1",
    "torch.compile": "TORCH_LOGS=recompiles",
}


@tell.register
def _(story: f.TwoThreads, finding: Finding) -> str:
    mine, beside = terms.op_at_line(story.mine), terms.op_at_line(story.beside)
    claim = "most likely not every rank called them in the same order"
    if story.without >= 0:
        others = f"{terms.have(story.ranks)} another thread"
        return f"{subject(finding)} is in {mine} alone, while {others} in {beside} as well: {claim}"
    both = f"{subject(finding)} have two threads in collectives at once, {mine} and {beside}"
    return f"{both}: {claim if story.one_group else _if_one_group(claim)}"


def _if_one_group(claim: str) -> str:
    return f"if of one group, {claim}"


@by_story.register
def _(story: f.TwoThreads, finding: Finding) -> str:
    apart = "give the thread a group of its own (dist.new_group())"
    one = f"Call both from one thread, or {apart}: collectives of one group must be called in one order on all ranks"
    return f"{one}. {count(finding)}".strip()


@tell.register
def _(story: f.UnmatchedPair, finding: Finding) -> str:
    waiter, peer = f"rank {story.waiter}", f"rank {story.peer}"
    sends = "send" in story.op.name
    waits = f"{terms.capital(waiter)} waits at {terms.place_of(story.op)} for {peer}"
    beside = f" with {terms.ranks(story.others)}" if story.others else ""
    is_in = f"{peer} is in {terms.op_at_line(story.own)}{beside}"
    if story.served:
        after = f"{waits} to send, after it had received from {terms.ranks(story.served)}"
        return f"{after}; {is_in}: {peer} has not sent, or with another tag"
    if sends:
        either = f"{peer} should have received before, or {waiter} should not have sent"
        return f"{waits} to receive; {is_in}: {either}"
    return f"{waits} to send; {is_in}: {peer} should have sent before, or {waiter} should not wait for it"


@by_story.register
def _(story: f.UnmatchedPair, finding: Finding) -> str:
    line = terms.place_of(story.op)
    see = f"See on {terms.ranks(finding.ranks)} what leads to the exchange at {line}"
    return f"{see}: both must decide alike. {count(finding)}".strip()


@tell.register
def _(story: f.OtherTag, finding: Finding) -> str:
    tag = f"{story.number}" if story.name == "tag" else f"{story.name}={story.number}"
    there = terms.choose(story.others, "waits", "wait")
    if story.is_root:
        here = f"{subject(finding)} waits in {terms.op(story.op)} with root {story.number}"
        return f"{here}, {terms.ranks(story.others)} {there} in calls with root {story.usual}"
    here = f"{subject(finding)} waits at {terms.place_of(story.op)} with tag {tag}"
    return (
        f"{here}, {terms.ranks(story.others)} {there} with {story.usual}: no message has both tags"
    )


@by_story.register
def _(story: f.OtherTag, finding: Finding) -> str:
    if story.is_root:
        return f"See how rank {finding.ranks[0]} comes to another root: all must work it out alike."
    here = f"See where rank {finding.ranks[0]} takes {story.name} from"
    return f"{here}, such as a checkpoint older or newer than the others'."


@tell.register
def _(story: f.OtherRoot, finding: Finding) -> str:
    own = f"{subject(finding)} has {story.name}={story.number}, all others {story.usual}"
    held = f"{terms.ranks(story.held)} {terms.choose(story.held, 'waits', 'wait')}"
    return f"{own}: the root of {terms.op(story.op)}, in which {held}"


@by_story.register
def _(story: f.OtherRoot, finding: Finding) -> str:
    return f"See how rank {finding.ranks[0]} comes to another {story.name}: all ranks must work out the same root."


@tell.register
def _(story: f.StepsApart, finding: Finding) -> str:
    span = f"{story.least}" if story.least == story.most else f"{story.least} to {story.most}"
    own = f"{subject(finding)} waits at {terms.place_of(story.op)} with {story.name}={story.number}"
    there = terms.choose(story.others, "waits", "wait")
    return f"{own}, {terms.ranks(story.others)} {there} there with {span}"


@by_story.register
def _(story: f.StepsApart, finding: Finding) -> str:
    here = f"See where rank {finding.ranks[0]} takes {story.name} from"
    return f"{here}, such as a checkpoint older or newer than the others', or what it skipped."


@tell.register
def _(story: f.AmountApart, finding: Finding) -> str:
    own = f"{subject(finding)} has {story.name}={story.number} in {terms.frame(story.frame)}, all others in it {story.usual}"
    waits = [
        f"{terms.ranks(ranks)} {terms.choose(ranks, 'waits', 'wait')} in {terms.op_at(op)}"
        for ranks, op in story.sides[:_NAMES]
    ]
    return f"{own}: {', '.join(waits)}" if waits else own


@by_story.register
def _(story: f.AmountApart, finding: Finding) -> str:
    here = f"See where rank {finding.ranks[0]} takes {story.name} from"
    return f"{here}: all that exchange with one another must go the same number of rounds."


@tell.register
def _(story: f.OwesAnswer, finding: Finding) -> str:
    asked = f"rank {story.asked}"
    own = f"{subject(finding)} waits at {_line(story.own)} for {asked}"
    takes = f"which waits at {_line(story.op)} for what any rank sends"
    past = f"{terms.ranks(story.through)} {terms.choose(story.through, 'is', 'are')} through"
    return f"{own}, {takes}; {past}: most likely it sent nothing, or the tags differ"


def _line(op: f.Op) -> str:
    """``server.py:29``; where there are two in a sentence, their functions would fill it."""
    return (terms.line(op.frame) if op.frame is not None else "") or terms.place_of(op)


@by_story.register
def _(story: f.OwesAnswer, finding: Finding) -> str:
    who, at = terms.ranks(tuple(finding.ranks)), terms.place_of(story.own)
    see = f"See what lets {who} come to {at} without sending what rank {story.asked} waits for: a swallowed exception, a continue"
    return f"{see}; else compare the tags, and what rank {story.asked} counts. {count(finding)}".strip()


@tell.register
def _(story: f.Interrupted, finding: Finding) -> str:
    own = f"{subject(finding)} {terms.choose(finding.ranks, 'was', 'were')} interrupted in {story.outer}"
    calls = f"by {terms.frame(story.handler)}, as a signal's handler does, which calls {terms.short_op(story.op)}"
    if not story.others:
        return f"{own} {calls}"
    there = terms.choose(story.others, "has not come to that call", "have not come to that call")
    return f"{own} {calls}; {terms.ranks(story.others)} {there}"


@by_story.register
def _(story: f.Interrupted, finding: Finding) -> str:
    asked = f"Who sent {terms.ranks(tuple(finding.ranks))} a signal (the scheduler before a time limit, a person)?"
    return f"{asked} A handler should only set a flag, on which all ranks agree between two steps."


@tell.register
def _(story: f.Compiling, finding: Finding) -> str:
    at = f" in {terms.frame(finding.frame)}" if finding.frame is not None else ""
    is_are, was = (
        terms.choose(finding.ranks, "is", "are"),
        terms.choose(finding.ranks, "was", "were"),
    )
    if story.goes_on:
        slow = f"{subject(finding)} {is_are} slow: the job goes on, but in all samples"
        return f"{slow} {terms.choose(finding.ranks, 'it', 'they')} {was} compiling{at} while all others waited"
    return f"{subject(finding)} {is_are} compiling{at}"


@by_story.register
def _(story: f.Compiling, finding: Finding) -> str:
    hint = _HINTS.get(story.compiler)
    show = f": {hint} shows why" if hint else ""
    again = "A compilation ends by itself: capture again in a minute"
    return f"{again}. If it compiles then too, its arguments have other shapes or constants each time{show}."


@tell.register
def _(story: f.AsksForOther, finding: Finding) -> str:
    at = terms.frame(finding.frame) if finding.frame is not None else "the same loop"
    names = " and ".join(story.names[:_NAMES])
    others = terms.ranks(story.others)
    differ = terms.choose(len(story.names), "differs", "differ")
    return f"{subject(finding)} waits in {at} for something else than {others}: its {names} {differ} from theirs, and all of them sleep and ask again in that loop"


@by_story.register
def _(story: f.AsksForOther, finding: Finding) -> str:
    see = "py-spy dump --locals --pid PID shows the value on each rank"
    return f"See how that rank came to its {story.names[0]}: a seed, a path or a setting that is another one on it. {see}."
