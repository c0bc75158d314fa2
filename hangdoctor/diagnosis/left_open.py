"""Pass, the last: of a hang, findings that name both sides since nothing shows which of them is wrong.

That the ranks wait for one another is certain, and which of them made a wrong call is not: no rank is a cause then. The
sentence says what each of them is in, and that it could not be told.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import findings as f
from .case import Case
from .draft import Draft
from .findings import Apart, DecidedBy, Finding


def run(case: Case, draft: Draft) -> None:
    """Leave them out where another one decides; else keep them as what was left open."""
    if case.capture.over or case.capture.origin == "files":
        return
    open_ones = [finding for finding in draft.findings if names_both_sides(finding)]
    if not open_ones:
        return
    draft.findings = [finding for finding in draft.findings if finding not in open_ones]
    if not draft.findings:
        draft.open = open_ones


def names_both_sides(finding: Finding) -> bool:
    """Whether it names several ranks of which one is wrong, and nothing showed which."""
    story = finding.story
    if len(finding.ranks) < 2:
        return False
    if isinstance(story, f.Ring):
        return story.mine is None
    if isinstance(story, f.Disagrees):
        return story.ground is DecidedBy.UNDECIDED
    if isinstance(story, f.AllIn):
        return bool(story.tags)
    return isinstance(story, f.InOther) and story.how in (Apart.RING, Apart.NO_ORDER)


def ranks_of_all(open_ones: Sequence[Finding]) -> tuple[int, ...]:
    """All ranks that they name."""
    return tuple(sorted({rank for finding in open_ones for rank in finding.ranks}))
