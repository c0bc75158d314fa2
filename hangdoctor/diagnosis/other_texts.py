"""Pass: all ranks wait in one loop of the program's own, and one of them asks there for something else.

A barrier by hand of files or keys never ends where a rank has another name for it than the others, by
a seed, a path or a setting of its own. Rank 0 often has a part of its own in such a loop: nothing is
said of it.
"""

from __future__ import annotations

from collections import Counter

from . import findings as f
from . import own_loops
from .case import Case, finding_on, stack_clue
from .confidence import Ground, sure
from .draft import Draft
from .view import RankView

_ENOUGH = 3  # ranks: two show no odd one


def run(case: Case, draft: Draft) -> None:
    """Name it, where nothing else is known of the job."""
    if draft.status != "unknown" or case.capture.over or len(case.alive) < _ENOUGH:
        return
    loop = own_loops.all_in_one(case)
    found = _odd_one(case.alive) if loop is not None else None
    if loop is None or found is None:
        return
    view, names = found
    others = tuple(rank for rank in loop.ranks if rank != view.rank)
    story = f.AsksForOther(names, others, loop.samples, loop.seconds)
    finding = finding_on(case, "mismatch", [view], story, confidence=sure(Ground.OTHER_TEXTS))
    finding.frame, finding.waiters = loop.frame, None
    finding.clues = [stack_clue([view], loop.frame.code)]
    draft.status, draft.findings, draft.remaining = "hang", [finding], None


def _odd_one(views: list[RankView]) -> tuple[RankView, tuple[str, ...]] | None:
    """The one rank that has other values, and of which variables; None where there are several such
    ranks, or where it is rank 0.
    """
    texts = {view.rank: own_loops.texts(view) for view in views}
    odd: dict[int, list[str]] = {}
    for name in sorted(set.intersection(*map(set, texts.values()))):
        values = Counter(of_rank[name] for of_rank in texts.values()).most_common()
        if len(values) == 2 and values[1][1] == 1:
            rank = next(r for r, of_rank in texts.items() if of_rank[name] == values[1][0])
            odd.setdefault(rank, []).append(name)
    if len(odd) != 1 or 0 in odd:
        return None
    [(rank, names)] = odd.items()
    return next(view for view in views if view.rank == rank), tuple(names)
