"""Sentences on ranks that did something else than the others: another call, signature or order."""

from __future__ import annotations

from ...model.frame import Frame
from ...stacks.place_search import STORE
from .. import findings as f
from ..findings import Apart, Finding
from . import terms
from .terms import choose


def subject(finding: Finding) -> str:
    """``Rank 5 (n2, pid 7791)``."""
    return terms.who(finding.ranks, finding.homes, finding.nodes)


_HOW = {
    Apart.BEHIND: "most likely {who} made an extra call",
    Apart.AHEAD: "most likely {who} skipped {theirs}",
    Apart.SMALLER_SIDE: "most likely {who} took another path",
    Apart.OTHER_GROUP: "the same call, but on another group",
    Apart.OTHER_LINES: "reached by different lines of the program",
    Apart.MOST_HAVE_LEFT: "the others are already further on",
    Apart.PAST: "the others wait in an earlier call",
    Apart.OUT_OF_LOOP: "it has left the loop in which the others wait for it",
    Apart.BOTH_SIDES: "most likely {who} made more or fewer rounds, such as micro-batches",
    Apart.ROUND_AHEAD: "it is a round ahead, and the others wait for what it has not sent",
}

# Where one of the two calls is a wait for a key.
_NOT_SET = "most likely {who} did not set their key"
_ASKS_ALONE = "most likely no rank sets that key"
_ANSWERED_BY = {"send": "recv", "recv": "send"}


def in_other(story: f.InOther, finding: Finding) -> str:
    """By stacks alone: who is in another operation than the others."""
    own = terms.op(story.op)
    if story.how is Apart.ROOTS:
        roots = ", ".join(f"rank {rank}: {root}" for rank, root in story.roots[:4])
        return f"{subject(finding)} {choose(finding.ranks, 'is', 'are')} in {own} with different roots ({roots})"
    if story.how is Apart.EITHER:
        return _either(story, finding)
    if story.how is Apart.NO_ORDER:
        return f"{subject(finding)} are in different operations; stacks do not show which side is wrong"
    if story.how is Apart.RING:
        return f"{subject(finding)} wait for one another{_each(story)}"
    if story.how is Apart.CALLED_ALONE:
        return _alone(story, finding)
    text = f"{subject(finding)} {choose(finding.ranks, 'is', 'are')} in {own}"
    if story.sides:
        return f"{_of_several(story, finding)}: {_how(story, finding)}"
    if story.their_op is not None and story.others:
        text += f", {terms.ranks(story.others)} in {terms.op(story.their_op)}"
    return f"{text}: {_how(story, finding)}"


def _each(story: f.InOther) -> str:
    """Of a ring: what each is in, at its line; else the names of the calls."""
    if not story.sides:
        return f" in {story.op.name}"
    each = [f"{terms.ranks(some)} in {terms.op_in_function(op)}" for some, op in story.sides]
    return f": {', '.join(each)}"


def _how(story: f.InOther, finding: Finding) -> str:
    who = terms.ranks(finding.ranks)
    if story.sides and story.how is Apart.BEHIND:
        return f"{who} alone is behind"
    theirs = story.their_op.name if story.their_op is not None else "that call"
    how = _HOW[story.how]
    if STORE in (theirs, story.op.name) and story.how in (Apart.AHEAD, Apart.BEHIND):
        how = _NOT_SET if theirs == STORE else _ASKS_ALONE
    if finding.gradients and story.how is Apart.BEHIND:
        how += " or has fewer batches"
    return how.format(who=who, theirs=theirs)


def _of_several(story: f.InOther, finding: Finding) -> str:
    """What each side is in, in few words."""
    own = f"{subject(finding)} {choose(finding.ranks, 'is', 'are')} in {terms.op_at_line(story.op)}"
    return f"{own}, {terms.in_operations(story.sides)}"


def _alone(story: f.InOther, finding: Finding) -> str:
    """The call that only one rank comes to, and where the others are."""
    text = f"{subject(finding)} alone calls {terms.op(story.op)}, under '{story.condition}'"
    if story.sides:
        return f"{text}: {terms.in_operations(story.sides)}"
    if story.their_op is not None:
        text += f": {terms.ranks(story.others)} in {terms.op_at_line(story.their_op)}"
    return text


def _either(story: f.InOther, finding: Finding) -> str:
    ahead = [r for r in finding.ranks if r not in story.others]
    theirs = terms.op(story.their_op) if story.their_op is not None else "an operation"
    return (
        f"{terms.capital(terms.ranks(ahead))} skipped {theirs}, or {terms.ranks(story.others)} called it once too often; "
        f"{terms.are(ahead)} in {terms.op(story.op)}"
    )


def disagrees(story: f.Disagrees, finding: Finding) -> str:
    """Who entered an operation with another signature than the others."""
    mine, theirs = ", ".join(story.my_values), ", ".join(story.their_values)
    if story.theirs is None and story.fields[:1] == ("op",):
        return f"{subject(finding)} entered {terms.op_at(story.mine)}, where calls like it are {theirs}"
    if story.theirs is None:
        entered = f"{subject(finding)} entered {terms.op_at(story.mine)}"
        if story.fields[:1] == ("op",):
            return f"{entered}, where calls like it are {theirs}"
        return f"{entered} with {mine}, where calls like it have {theirs}"
    if story.ground is f.DecidedBy.UNDECIDED:
        mine, theirs = terms.on_sides((mine, theirs), story.sides)
        return f"{subject(finding)} disagree in {terms.op(story.mine)}: {mine} and {theirs}"
    if story.ground is f.DecidedBy.NEW_CALL:
        own = (
            f"{subject(finding)} entered {terms.op_at(story.mine)}, which no rank had called before"
        )
        return f"{own}, where the others entered {_bare(story.theirs)} as in each round"
    if finding.left_loop is not None:
        left = f"{subject(finding)} left the loop in {terms.frame(finding.left_loop)} before the others"
        return f"{left}: it is in {terms.op_at(story.mine)}, they are in {_bare(story.theirs)}"
    if story.fields[:1] == ("op",):
        return f"{subject(finding)} entered {terms.op_at(story.mine)} where the others entered {_bare(story.theirs)}"
    others = _counterpart(story) or "the others"
    return f"{subject(finding)} entered {terms.op(story.mine)} with {mine}, {others} with {theirs}"


def out_of_loop(finding: Finding, line: Frame) -> str:
    """The clause beside a call that was left out; "" where the head says it."""
    if isinstance(finding.story, f.Disagrees):
        return ""
    return f"it has left the loop of the others, in {terms.frame(line)}"


def _counterpart(story: f.Disagrees) -> str:
    """The other half of a transfer, which has no more than two sides: ``rank 1 its recv``."""
    other, peer = story.theirs, story.mine.peer
    if other is None or other.name not in _ANSWERED_BY or peer is None or peer < 0:
        return ""
    return f"rank {peer} its {other.name}"


def _bare(op: f.Op) -> str:
    return f"{op.name}{terms.in_brackets(op)}"


def _before_records(story: f.Diverged, finding: Finding) -> str:
    if story.how == "other" and story.mine and story.theirs:
        return _to_wrong_rank(finding, story.mine, story.theirs)
    way = "behind" if story.how == "skipped" else "ahead of"
    apart = f"its {terms.op_at(story.mine)} is {way} {terms.op_at(story.theirs)} of rank {story.reference}"
    return f"{subject(finding)} got out of step before the records start: {apart}"


def diverged(story: f.Diverged, finding: Finding) -> str:
    """Who made other calls than a rank with the same role, or than itself before."""
    who, mine, theirs = subject(finding), terms.op_at(story.mine), terms.op_at(story.theirs)
    if story.before_records:
        return _before_records(story, finding)
    if story.tags and story.how != "own":
        own, other = story.tags
        return f"{who} entered {mine} with {own}, where rank {story.reference}, which has the same role, made that call with {other}"
    if story.how == "own":
        return f"{who} entered {mine}, where it entered {theirs} in each earlier round"
    if of_new_groups(story):
        return _other_group_made(story, who)
    if story.how == "skipped":
        return f"{who} skipped {theirs} and went on to {terms.op_after(story.mine, story.theirs)}"
    if story.how == "swapped":
        later = terms.op_after(story.theirs, story.mine)
        return f"{who} entered {mine} before {later}, rank {story.reference} after it"
    if story.how == "extra":
        due = terms.op_after(story.theirs, story.mine)
        return f"{who} made one call too many, {mine}, where rank {story.reference} entered {due}"
    if story.how == "either":
        return _more_or_less(story, who)
    if story.how == "other" and story.reference in finding.ranks and story.theirs is not None:
        return f"{who} entered {mine}, where calls of that line are with rank {story.theirs.peer}"
    if story.how == "group":
        return f"{who} entered {mine} on a different group from rank {story.reference}: {theirs}"
    return f"{who} entered {mine} where rank {story.reference}, which has the same role, entered {theirs}"


def _more_or_less(story: f.Diverged, who: str) -> str:
    """One call too many, or one too few: what follows does not show which."""
    mine, due = terms.op_at(story.mine), terms.op_after(story.theirs, story.mine)
    if story.again:
        went_on = f"rank {story.reference} went on to {due}"
        apart = f"{who} called {mine} twice in a row, where {went_on}"
        return f"{apart}: one call too many, or a round left out"
    went = f"{who} entered {mine} where rank {story.reference} entered {due}"
    return f"{went}: one call left out, or one too many"


def of_new_groups(story: f.Diverged) -> bool:
    """Whether both made a group there, each of other ranks."""
    mine, theirs = story.mine, story.theirs
    if mine is None or theirs is None or not mine.made or not theirs.made:
        return False
    return mine.made != theirs.made


def _other_group_made(story: f.Diverged, who: str) -> str:
    assert story.mine is not None and story.theirs is not None
    own, other = (_members(op.made) for op in (story.mine, story.theirs))
    why = "it makes its groups in another order, or left that one out"
    if story.how == "extra":
        why = "it makes its groups in another order, or made one more"
    return f"{who} made {terms.op_at(story.mine)}, of {own}, where rank {story.reference} made that of {other}: {why}"


def _members(listed: str) -> str:
    """``ranks 0-3``; the word of groups that only their members make stays away."""
    return f"ranks {listed.removeprefix('local ')}"


def both_sides(story: f.Ring, finding: Finding) -> str:
    """Of two ranks that wait for one another: what each is in, and what is not there."""
    return f"{subject(finding)} wait for one another: {_each_side(story.sides)}"


def other_round(story: f.OtherRound, finding: Finding) -> str:
    """Of two ranks that wait for one another, the one whose round differs."""
    who, others = subject(finding), terms.ranks(story.others)
    repeats = choose(story.others, "repeats", "repeat")
    apart = f"{who} repeats its earlier sends and receives where {others} went on to others"
    if not story.kept:
        apart = (
            f"{who} went on to other sends and receives where {others} {repeats} the earlier ones"
        )
    waits = [f"rank {rank} waits in {terms.op(op)}" for rank, op in story.sides]
    return f"{apart}: {', '.join(waits)}"


def _each_side(sides: tuple[tuple[int, f.Op], ...]) -> str:
    """What each of two is in, and what is not there."""
    sides = tuple(sorted(sides, key=lambda side: side[1].name not in _ANSWERED_BY))
    text = ", ".join(f"rank {rank} in {terms.op_at(op)}" for rank, op in sides)
    first, second = (op.name for _, op in sides)
    if second not in _ANSWERED_BY:
        return f"{text} without the {_ANSWERED_BY[first]} for it"
    if first != second:
        return text
    return f"{text}, and neither {'receives' if first == 'send' else 'sends'}"


def other_partners(story: f.OtherPartners, finding: Finding) -> str:
    """Who exchanges with ranks that do not expect it."""
    own = terms.partners(story.sends_to, story.receives_from)
    awaited = f"{terms.ranks(story.awaited_by)} {choose(story.awaited_by, 'waits', 'wait')} for it"
    does = choose(sorted({*story.sends_to, *story.receives_from}), "does", "do")
    who = f"{subject(finding)} has other partners than the ranks around it"
    return f"{who}: it {own}, which {does} not expect it; {awaited}"


def _to_wrong_rank(finding: Finding, wrong: f.Op, due: f.Op) -> str:
    """A transfer with the wrong rank that the records no longer have: the counts of both show it."""
    counts = f"it is ahead with {terms.op(wrong)} and behind with {terms.op(due)}"
    return f"{subject(finding)} chose the wrong rank before the records start: {counts}"
