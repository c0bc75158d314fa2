"""Several ranks whose threads keep the GIL in one call, as in a collective of a library that does not
release it.

There they wait for one another, or for a rank that cannot come: what is wrong is the call, and the job is
held by those for whose messages other ranks wait.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from .case import Case, finding_on, waiters
from .draft import ranks_blamed
from .findings import Finding, HoldsGil
from .view import RankView


def joined(case: Case, found: Sequence[Finding]) -> tuple[list[Finding], set[int]]:
    """The findings, with one for the ranks whose threads keep the GIL at one line; and the ranks that it does
    not name, because others wait for the rest of them.
    """
    at: dict[tuple[str, int], list[Finding]] = {}
    kept: list[Finding] = []
    for finding in found:
        frame = finding.story.frame if isinstance(finding.story, HoldsGil) else None
        if frame is None:
            kept.append(finding)
        else:
            at.setdefault((frame.file, frame.line), []).append(finding)
    kept += [_of_all(case, alike) for alike in at.values()]
    return kept, ranks_blamed(found) - ranks_blamed(kept)


def _of_all(case: Case, alike: list[Finding]) -> Finding:
    if len(alike) == 1:
        return alike[0]
    holding = {rank for finding in alike for rank in finding.ranks}
    awaited = _awaited(case, holding) or holding
    mine = [finding for finding in alike if set(finding.ranks) <= awaited]
    rest = [finding for finding in alike if finding not in mine]
    first = min(mine, key=lambda finding: finding.confidence)
    assert isinstance(first.story, HoldsGil)
    story = structs.replace(first.story, beside=tuple(sorted(holding - awaited)))
    views = [view for view in case.alive if view.rank in awaited]
    one = finding_on(case, "interpreter_lock", views, story, confidence=first.confidence)
    one.where.frame = first.where.frame
    one.waiters = waiters(case, holding)
    one.clues = [clue for finding in mine + rest for clue in finding.clues]
    one.against = first.against
    return one


def _awaited(case: Case, holding: set[int]) -> set[int]:
    """Those of them for whose sends or receives another rank waits, by its own number."""
    others = [view for view in case.waiting if view.rank not in holding]
    return {view.place.peer for view in others if _in_transfer(view)} & holding


def _in_transfer(view: RankView) -> bool:
    return view.place.kind == "p2p" and view.place.peer >= 0
