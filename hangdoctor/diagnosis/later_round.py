"""Pass: whether a rank that made another call than the others made one too many or left one out.

Where its records do not show that, its stack does: in a later round of the loop around both calls
than all others, it left one out. A call too many would have been made in its own round.
"""

from __future__ import annotations

from msgspec import structs

from . import findings as f
from .case import Case
from .draft import Draft
from .findings import Finding
from .position import is_rounds_behind


def run(case: Case, draft: Draft) -> None:
    """Say of each such finding that the rank skipped the call in which the others are."""
    for finding in draft.findings:
        if isinstance(finding.story, f.Diverged) and _is_ahead(case, finding):
            finding.story = _left_out(finding.story)


def _left_out(story: f.Diverged) -> f.Diverged:
    undecided = story.how in ("extra", "either") and not story.before_records
    return structs.replace(story, how="skipped") if undecided else story


def _is_ahead(case: Case, finding: Finding) -> bool:
    own = [view for view in case.alive if view.rank in finding.ranks]
    others = [view for view in case.alive if view.rank not in finding.ranks and view.waits]
    if len(own) != 1 or len(finding.ranks) != 1 or not others:
        return False
    return all(is_rounds_behind(view.path, own[0].path) for view in others)
