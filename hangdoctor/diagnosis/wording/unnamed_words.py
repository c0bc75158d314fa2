"""The words for native stacks of processes of which no rank is known."""

from __future__ import annotations

from collections.abc import Sequence

from ...stacks import no_ranks
from .. import findings as f
from ..findings import Finding
from . import terms
from .advice import by_story
from .clues import say
from .stories import tell

_AWAITS = {
    no_ranks.WORKERS: "waits for an answer of its workers",
    no_ranks.REQUESTS: "waits for requests",
    no_ranks.NODES: "waits for other nodes at the rendezvous",
    no_ranks.AT_EXIT: "waits at its exit for the agents of the other nodes",
    no_ranks.RANKS: "waits for its ranks to end",
}
_UNSIGNED = (1 << 32, 1 << 64)  # beyond the largest numbers without a sign
_FEW = 1024  # below them: a small negative number
_SHOWN = 3  # processes, or places, that a sentence names


def _listed(names: Sequence[str]) -> str:
    """``process 12, process 13 and 2 more``."""
    shown = list(names[:_SHOWN])
    more = len(names) - len(shown)
    if more:
        shown.append(f"{more} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


@tell.register
def _(story: f.UnnamedElsewhere, finding: Finding) -> str:
    late, others = terms.capital(_listed(story.late)), _listed(story.others)
    waits = terms.choose(story.others, "waits", "wait")
    in_theirs = terms.op(story.their_op)
    if story.own_op is not None:
        is_are = terms.choose(story.late, "is", "are")
        return f"{late} {is_are} still in {terms.op(story.own_op)}, while {others} {waits} in {in_theirs}"
    has = terms.choose(story.late, "has", "have")
    at = ""
    if story.frame is not None:
        at = f"; {terms.choose(story.late, 'it is', 'they are')} in {terms.frame(story.frame)}"
    return f"{late} {has} not reached {in_theirs}, in which {others} {waits}{at}"


@by_story.register
def _(story: f.UnnamedElsewhere, finding: Finding) -> str:
    again = "Print its stack again after 10 s: one that has changed is slow, and not stuck"
    if story.own_op is not None:
        again = "Print the stacks of all other processes, too: who is not in this call is what it waits for"
    return f"{again}. gdb -p PID -batch -ex 'thread apply all bt' on each process, with its rank above it, shows all."


@tell.register
def _(story: f.EndedItself, finding: Finding) -> str:
    who = terms.capital(_listed(story.names))
    call = "MPI_Abort" if story.by_mpi else "abort()"
    itself = terms.choose(story.names, "itself", "themselves")
    return (
        f"{who} ended {itself}: {call} was called out of {terms.frame(story.frame)}{_with(story)}"
    )


def _with(story: f.EndedItself) -> str:
    """The arguments, and what a huge one is."""
    shown = []
    for name, value in story.values:
        minus = next((value - size for size in _UNSIGNED if 0 < size - value <= _FEW), 0)
        shown.append(f"{name}={value}" + (f", which is {minus} without its sign" if minus else ""))
    return f" with {'; '.join(shown)}" if shown else ""


@by_story.register
def _(story: f.EndedItself, finding: Finding) -> str:
    place = f"frame function {story.frame.name.rpartition('::')[2]}"
    return f"It does not hang: a check of that function's failed. In gdb: {place}, info args, info locals, then up to who called it; what it printed before says why."


@say.register
def _(fact: f.UnnamedAt) -> str:
    shown = " < ".join(terms.long_frame(frame) for frame in fact.frames) or "no known frame"
    return f"{_listed(fact.names)}: {shown}"


def unknown(places: Sequence[f.Standing]) -> str:
    """Where they are, and what would decide it."""
    shown = "; ".join(_stands(place) for place in places[:_SHOWN])
    more = len(places) - _SHOWN
    rest = f"; {terms.count(more, 'further place')}" if more > 0 else ""
    return f"{shown}{rest}. {_decides(places)}"


def _stands(of: f.Standing) -> str:
    who, one = _listed(of.names), len(of.names)
    if of.rankless:
        return f"{who} runs no rank, and {_does(of)}"
    if of.end:
        at = f" in {terms.frame(of.frame)}" if of.frame is not None else ""
        return f"{who} was ended by {terms.signal_name(of.end)}{at}"
    if of.aborted:
        at = f" in {terms.frame(of.frame)}" if of.frame is not None else ""
        return f"{who} called MPI_Abort{at}"
    if of.op is not None:
        for_ = (
            f", for {terms.choose(one, 'its', 'their')} sends and receives" if of.requests else ""
        )
        return f"{who} {terms.choose(one, 'waits', 'wait')} in {terms.op(of.op)}{for_}"
    if of.frame is None and of.within is not None:
        inside = f"{who} {terms.choose(one, 'is', 'are')} inside of {terms.frame(of.within)}"
        return f"{inside}, and the frames within it are not there"
    if of.frame is None:
        return f"the stack of {who} does not show where {terms.choose(one, 'it is', 'they are')}"
    verb = terms.choose(one, "is", "are")
    place = "past the call of the others" if of.passed else "in no collective, send or recv"
    if of.inside:
        waits, its = terms.choose(one, "waits", "wait"), terms.choose(one, "its", "their")
        return f"{who} {waits} for another thread of {its} own process in {terms.frame(of.frame)}, {place}"
    return f"{who} {verb} in {terms.frame(of.frame)}, {place}"


def _does(of: f.Standing) -> str:
    at = f" in {terms.frame(of.frame)}" if of.frame is not None else ""
    does = _AWAITS.get(of.awaits, "")
    if does or at:
        return f"{does or 'is'}{at}"
    return "its stack does not show where it is"


def _decides(places: Sequence[f.Standing]) -> str:
    if all(place.rankless for place in places):
        return _of_others({place.awaits for place in places})
    if all(place.locked for place in places):
        return (
            "Such a lock is held inside the same process, perhaps by this very thread, and no other process can give it free. "
            "Print all its threads: gdb -p PID -batch -ex 'thread apply all bt'"
        )
    waiting = [place for place in places if place.op is not None]
    if len(waiting) == len(places) and all(place.collective for place in places):
        said = _of_collectives(places)
        if said:
            return said
    if len(waiting) == len(places):
        which = (
            "which process they wait for"
            if len(places) > 1 or len(places[0].names) > 1
            else "which process it waits for"
        )
        return f"These stacks do not show {which}: print those of all ranks, each with its rank"
    if any(place.end or place.aborted for place in places):
        return "Which process failed first, the job's log shows"
    if any(place.passed for place in places):
        return "Who is past that call made it before the others, or went on without it: their ways through the program may part at that line. Which ranks these are, and whether they move, stacks with ranks, taken twice, would show"
    if not waiting:
        return "Whether it moves from there, a second stack would show; what the other ranks wait in, theirs"
    return "Print the stacks of all ranks, each with its rank, and twice: who is elsewhere both times makes the others wait"


def _of_collectives(places: Sequence[f.Standing]) -> str:
    """Several in one call, or in calls that do not go together; "" of one alone."""
    names = [name for place in places for name in place.names]
    if len(places) > 1:
        return f"Each of these calls waits for all members of its group: if they are of one group, the program took different ways{_APART}"
    if len(names) < 2:
        return ""
    if places[0].pair and len(names) == 2:
        return "The library's function in their stacks is one for two processes, and both are in it: none is missing, and their messages do not get through. Check the network between their hosts, and which interfaces the library takes"
    return "None of these is missing there: another process did not come, or all did and the library's messages do not get through. The stacks of all ranks, each with its rank, show which"


_APART = ", and which of them is wrong the stacks do not show. Begin at the last line that they have in common; print the stacks of all ranks, each with its rank"


def _of_others(awaited: set[str]) -> str:
    """Whose stacks would tell more than those of processes that run no rank."""
    if awaited == {no_ranks.REQUESTS}:
        return "If requests hang, they do so before it: print the stacks of the server, too"
    if awaited <= {no_ranks.NODES, no_ranks.AT_EXIT}:
        return (
            "Which node's agent has not come, the output of the launcher on the other nodes shows"
        )
    return "Which rank hangs, the stacks of the workers show: py-spy dump --pid of each of them"
