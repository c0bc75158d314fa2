"""Pass: where the stacks of ranks in different operations part, in a function that both are in."""

from __future__ import annotations

from ..model.capture import Frame
from ..stacks.user_code import is_users
from .case import Case
from .draft import Draft
from .findings import Finding, InOther


def run(case: Case, draft: Draft) -> None:
    """Add to findings on two sides the line of each in the innermost function that they share."""
    for finding in draft.findings:
        if isinstance(finding.story, InOther) and finding.story.others:
            finding.parting = _parting(case, finding, finding.story.others)


def _parting(case: Case, finding: Finding, others: tuple[int, ...]) -> tuple[Frame, Frame] | None:
    """None where they share no function, part in one that is not the user's, or not all in one."""
    paths = {v.rank: v.path for v in case.views}
    mine = [paths.get(r, []) for r in finding.ranks if r not in others]
    theirs = [paths.get(r, []) for r in others]
    if not mine or not theirs:
        return None
    # Each against one of the other side: of thousands of ranks, all pairs would be too many.
    found = [_difference(mine[0], path) for path in theirs]
    found += [_difference(path, theirs[0]) for path in mine[1:]]
    return _same_in_all(found)


def _same_in_all(found: list[tuple[Frame, Frame] | None]) -> tuple[Frame, Frame] | None:
    """The difference that all pairs show, where it is at a line of the user's."""
    first = found[0]
    if first is None or not is_users(first[0]):
        return None
    return first if all(f is not None and _at(f) == _at(first) for f in found) else None


def _difference(one: list[Frame], other: list[Frame]) -> tuple[Frame, Frame] | None:
    """Where two stacks first differ, outermost first; None where it is not by the line alone."""
    for a, b in zip(one, other, strict=False):
        if (a.name, a.file) != (b.name, b.file):
            return None
        if a.line != b.line:
            return a, b
    return None


def _at(parting: tuple[Frame, Frame]) -> tuple[str, str, int, int]:
    one, other = parting
    return one.name, one.file, one.line, other.line
