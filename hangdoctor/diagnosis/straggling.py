"""Pass: a straggler that the collector saw over minutes: a capture of one moment seldom shows it."""

from __future__ import annotations

from statistics import median

from .case import Case, frame_of, nodes_of
from .confidence import Ground, sure
from .draft import Draft
from .findings import Against, At, Clue, Finding, SlowByHistory, WaitedShare, Why


def run(case: Case, draft: Draft) -> None:
    """A hang that the capture shows counts for more; else the job is slow."""
    slowest = case.capture.slowest
    known = any(c.kind == "slow" and c.ranks == [slowest] for c in draft.findings)
    if slowest < 0 or draft.status in ("hang", "failed") or known:
        return
    if not set(case.capture.waited) - {slowest}:
        return  # nothing to compare it with
    draft.status, draft.findings = "slow", [_finding(case)]


def _finding(case: Case) -> Finding:
    capture, rank = case.capture, case.capture.slowest
    views = [v for v in case.views if v.rank == rank]
    others = {r: share for r, share in capture.waited.items() if r != rank}
    shares = list(others.values())
    own = capture.waited.get(rank, 0)
    finding = Finding(
        kind="slow",
        ranks=[rank],
        story=SlowByHistory(capture.waited_s, own, min(shares), median(shares), most=max(shares)),
        confidence=sure(Ground.SLOW_BY_HISTORY),
        nodes=nodes_of(views),
        clues=[
            Clue("ops", (rank,), WaitedShare(own, own)),
            Clue("ops", tuple(sorted(others)), WaitedShare(min(shares), max(shares))),
        ],
        against=[Against("in_communication", tuple(sorted(capture.waited)), Why.NETWORK_SLOWS_ALL)],
    )
    if views and views[0].place.frame is not None:
        finding.frame = frame_of(views[0])
        finding.where.frame = str(views[0].place.frame)
        finding.clues.append(Clue("stack", (rank,), At((views[0].place.frame,))))
    return finding
