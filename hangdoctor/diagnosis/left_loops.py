"""Pass: a rank that has left a loop in which those who wait for it still are.

Its call comes after the loop: it stopped earlier, by a condition of its own or since its data
ended. That says more than that its call is another one.
"""

from __future__ import annotations

from ..model.capture import Frame
from .case import Case
from .draft import Draft
from .findings import Disagrees, Diverged, Finding

_WAYS = ("skipped", "either", "extra", "other")
_Paths = dict[int, list[Frame]]  # by rank, outermost frame first


def run(case: Case, draft: Draft) -> None:
    """Add the line after the loop to findings on one rank's other call."""
    found = [f for f in draft.findings if len(f.ranks) == 1 and _is_about_another_call(f)]
    paths: _Paths = {v.rank: v.path for v in case.views if v.path} if found else {}
    for finding in found:
        finding.left_loop = _left(finding, paths)


def _is_about_another_call(finding: Finding) -> bool:
    story = finding.story
    if isinstance(story, Diverged):
        return story.how in _WAYS and not story.before_records
    return isinstance(story, Disagrees) and story.fields[:1] == ("op",)


def _left(finding: Finding, paths: _Paths) -> Frame | None:
    """The rank's line, where each of the others that wait is in the loop."""
    waiting = finding.waiters.ranks if finding.waiters is not None else ()
    mine = paths.get(finding.ranks[0], [])
    others = [paths.get(rank, []) for rank in waiting if rank not in finding.ranks]
    left = [_after_loop(mine, other) for other in others]
    first = left[0] if left else None
    return first if all(frame is first for frame in left) else None


def _after_loop(mine: list[Frame], other: list[Frame]) -> Frame | None:
    """The frame of `mine` behind a loop of the same function that `other` is in; None where it is
    in it, too.
    """
    known = {(frame.name, frame.file): at for at, frame in reversed([*enumerate(other)])}
    # A box has room for some frames only, and leaves out the outermost.
    begin = next((at for at, frame in enumerate(mine) if (frame.name, frame.file) in known), 0)
    first = known.get((mine[begin].name, mine[begin].file), 0) if mine else 0
    for one, theirs in zip(mine[begin:], other[first:], strict=False):
        if (one.name, one.file) != (theirs.name, theirs.file):
            return None
        if one.line != theirs.line:
            out = set(theirs.turns) - set(one.turns)
            return one if out and one.line > theirs.line else None
    return None
