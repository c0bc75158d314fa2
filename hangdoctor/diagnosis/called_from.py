"""Pass: the user's line from which a library made a recorded call.

A box keeps the line that called torch.distributed. Where that is a metric's or a trainer's, a reader
cannot change it: the line that led there is in the rank's stack, or in the exception that ended it.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from ..model.capture import Frame
from ..model.log_facts import PythonError
from ..stacks.user_code import is_users
from ..text.ranges import number_in
from .case import Case
from .draft import Draft
from .findings import Disagrees, Diverged, Finding, Op

_Stacks = dict[int, list[Frame]]  # by rank, innermost first


def run(case: Case, draft: Draft) -> None:
    """Add these lines to findings on a call that one rank made otherwise than the others."""
    found = [f for f in draft.findings if isinstance(f.story, Diverged | Disagrees)]
    alone = [finding for finding in found if len(finding.ranks) == 1]
    stacks = _stacks(case) if alone else {}
    for finding in alone:
        _add(case, finding, stacks)


def _stacks(case: Case) -> _Stacks:
    """Where each rank is; of one that left no place, how its exception came there."""
    facts = case.capture.logs.facts if case.capture.logs is not None else []
    found: _Stacks = {}
    for fact in facts:
        if isinstance(fact, PythonError) and fact.rank >= 0 and fact.frames:
            found[fact.rank] = stack_of(fact)
    found |= {view.rank: view.path[::-1] for view in case.views if view.path}
    return found


def stack_of(error: PythonError) -> list[Frame]:
    """The frames of an exception, innermost first; of a deep one a log's few end before the innermost
    of the user's, which is known apart.
    """
    own = error.frame
    if own is None or not is_users(own) or any(map(is_users, error.frames)):
        return error.frames
    return [*error.frames, own]


def _add(case: Case, finding: Finding, stacks: _Stacks) -> None:
    story = finding.story
    if not isinstance(story, Diverged | Disagrees):
        return
    rank, other = finding.ranks[0], _other(finding)
    own, others = stacks.get(rank, []), stacks.get(other, [])
    mine, theirs = story.mine, story.theirs
    if mine is not None and _is_in(case, rank, mine):
        mine = _with_caller(mine, own, others)
    if theirs is not None and _is_in(case, other, theirs):
        theirs = _with_caller(theirs, others, own)
    if mine is not None and theirs is not None and mine.site and mine.site == theirs.site:
        mine, theirs = _told_apart(case, (rank, mine), (other, theirs))
    finding.story = structs.replace(story, mine=mine, theirs=theirs)
    caller = mine.called_from if mine is not None else None
    if caller is not None and finding.frame is None:
        finding.frame = caller
        finding.where.frame = finding.where.frame or str(caller)


def _told_apart(case: Case, one: tuple[int, Op], other: tuple[int, Op]) -> tuple[Op, Op]:
    """Of two calls below one line of the user's the lines of the framework that made them, where
    the stacks show both.
    """
    frames = [_framework(case, rank, op) for rank, op in (one, other)]
    lines = [str(frame) for frame in frames if frame is not None]
    if len(set(lines)) < 2:
        return one[1], other[1]
    return structs.replace(one[1], site=lines[0]), structs.replace(other[1], site=lines[1])


def _framework(case: Case, rank: int, op: Op) -> Frame | None:
    """The framework's line at which a rank is in that call, by its stack."""
    place = next((view.place for view in case.views if view.rank == rank), None)
    return place.caller if place is not None and op.name in place.op else None


def _other(finding: Finding) -> int:
    """The rank that made the call of the others; -1 where none is named."""
    if isinstance(finding.story, Diverged):
        return finding.story.reference
    waiting = finding.waiters.ranks if finding.waiters is not None else ()
    return next((rank for rank in waiting if rank not in finding.ranks), -1)


def _is_in(case: Case, rank: int, op: Op) -> bool:
    """Whether its stack is of that call: it is in it, or failed in it. Of an earlier one of the same
    line it is not.
    """
    ops = next((view.capture.ops for view in case.views if view.rank == rank), None)
    if ops is None:
        return False
    last = [o for o in ops.operations if o.state != "done" or o.failed]
    return any((o.op, o.seq, o.site) == (op.name, op.seq, op.site) for o in last)


def _with_caller(op: Op, own: Sequence[Frame], other: Sequence[Frame]) -> Op:
    """Where both sides came by the same line of the user's, that line does not tell them apart."""
    caller = caller_of(op.site, own)
    if caller is None or any(_at(frame) == _at(caller) for frame in other):
        return op
    return structs.replace(op, called_from=caller)


def caller_of(site: str, stack: Sequence[Frame]) -> Frame | None:
    """The user's frame that a library's call site, ``function (file:line)``, was called from, by a stack
    that has both, innermost first; None where the site is the user's own, or the stack is of
    another call.
    """
    file, _, number = site.rpartition(" (")[2].rstrip(")").rpartition(":")
    if not file or is_users(Frame("", file, 0)):
        return None
    line, passed = number_in(number), False
    for frame in stack:
        if is_users(frame):
            return frame if passed else None
        passed = passed or (frame.line == line and _same_file(frame.file, file))
    return None


def _same_file(seen: str, recorded: str) -> bool:
    """Of long paths a box keeps the end."""
    return bool(seen) and (recorded.endswith(seen) or seen.endswith(recorded))


def _at(frame: Frame) -> tuple[str, int]:
    return frame.file, frame.line
