"""Pass: a job that ended while it was captured: it does not hang, whatever its last samples show."""

from __future__ import annotations

from collections.abc import Iterable

from ..model.capture import RankCapture
from .case import Case
from .draft import Draft
from .findings import End, EndedMeanwhile


def run(case: Case, draft: Draft) -> None:
    """The job failed where a cause is known, and did not where all ranks ended with code 0."""
    if not case.capture.ended_meanwhile:
        return
    ends = _ends(case.capture.ranks())
    if all(end.code == 0 for end, _ in ends):
        draft.findings = []
    draft.ended = EndedMeanwhile(ends, named=bool(draft.findings))
    draft.status = "failed" if draft.findings else "unknown"
    draft.waits, draft.remaining = [], None


def _ends(ranks: Iterable[RankCapture]) -> tuple[tuple[End, tuple[int, ...]], ...]:
    alike: dict[End, list[int]] = {}
    for rank in ranks:
        alike.setdefault(End(rank.exit_code), []).append(rank.rank)
    return tuple((end, tuple(some)) for end, some in alike.items())
