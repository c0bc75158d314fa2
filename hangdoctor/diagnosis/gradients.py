"""What DistributedDataParallel does in C++: all_reduces of gradients, which stacks show and no
black box records.
"""

from __future__ import annotations

from ..model.operations import RankOps
from ..stacks.place_rules import GRADIENTS
from .case import Case
from .draft import Draft
from .findings import Finding
from .ops.evidence import Note, Remark
from .recorders import by_recorder


def mark(case: Case, findings: list[Finding]) -> list[Finding]:
    """The same findings; a wrong order is marked where one side of it reduces gradients, which has
    usual reasons.
    """
    if any(v.place.op == GRADIENTS for v in case.waiting):
        for finding in findings:
            finding.gradients = True
    return findings


def run(case: Case, draft: Draft) -> None:
    """Drop what the operations blame on ranks that wait in something their records cannot show."""
    if draft.ops is None or by_recorder(case):
        return
    unseen = {
        v.rank: v
        for v in case.waiting
        if v.capture.ops is not None and _shows_nothing(v.capture.ops)
    }
    kept = [
        c
        for c in draft.ops.findings
        if c.kind not in ("not_entered", "order") or not set(c.ranks) <= unseen.keys()
    ]
    if len(kept) == len(draft.ops.findings):
        return
    draft.ops.findings = kept
    if not kept:
        draft.waits = []  # as the stacks show them
    place = next(iter(unseen.values())).place
    note = Note(Remark.UNRECORDED_WAIT, tuple(sorted(unseen)), op=place.op, frame=place.frame)
    draft.notes.append(note)


def _shows_nothing(ops: RankOps) -> bool:
    return ops.source == "blackbox" and not ops.unfinished()
