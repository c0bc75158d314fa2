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
    paths = {v.rank: v.path for v in case.views}
    mine = [paths.get(r, []) for r in finding.ranks if r not in others]
    theirs = [paths.get(r, []) for r in others]
    pairs = {_lines(a, b) for a in mine for b in theirs}
    if len(pairs) != 1 or None in pairs:
        return None  # no function in common, or not the same one for all of them
    one, other = mine[0], theirs[0]
    for a, b in zip(one, other, strict=False):
        if a.line != b.line:
            return (a, b) if is_users(a) else None
    return None


def _lines(one: list[Frame], other: list[Frame]) -> tuple[str, str, int, int] | None:
    """Function, file and both lines of the first difference; None where it is the function."""
    for a, b in zip(one, other, strict=False):
        if (a.name, a.file) != (b.name, b.file):
            return None
        if a.line != b.line:
            return a.name, a.file, a.line, b.line
    return None
