"""What DistributedDataParallel does in C++: all_reduces of gradients, which stacks show and no
black box records.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from ..stacks.place_search import GRADIENTS
from .case import Case
from .confidence import Ground, sure
from .draft import Draft
from .findings import Against, Apart, Finding, InOther, NeverReached, Why
from .ops.evidence import Note, Remark
from .recorders import box_shows_nothing, by_recorder
from .view import RankView

_AT_EXIT = "interpreter exit"
_TWO_SIDES = (Apart.SMALLER_SIDE, Apart.BEHIND, Apart.AHEAD)


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
    unseen = _unrecorded_waits(case)
    if case.capture.over:
        for finding in draft.ops.findings:
            if not set(finding.ranks) <= unseen.keys():
                _turn(finding)
    findings = draft.ops.findings
    dropped = [one for one in findings if _is_doubtful(one, unseen)]
    if not dropped:
        return
    draft.ops.findings = [one for one in findings if not _is_doubtful(one, unseen)]
    if not draft.ops.findings:
        draft.waits = []  # as the stacks show them
    for finding in dropped:
        _count(draft, finding)
    place = next(iter(unseen.values())).place
    note = Note(Remark.UNRECORDED_WAIT, tuple(sorted(unseen)), op=place.op, frame=place.frame)
    draft.notes.append(note)


def _unrecorded_waits(case: Case) -> dict[int, RankView]:
    """Ranks that wait by their stacks, while their black boxes show no open operation."""
    # Whoever waits for its own threads at exit is through with its program, whatever it called.
    waiting = [v for v in case.waiting if v.place.op != _AT_EXIT]
    records = {v.rank: (v, v.capture.ops) for v in waiting}
    return {
        rank: view
        for rank, (view, ops) in records.items()
        if ops is not None and box_shows_nothing(ops)
    }


def cannot_know(case: Case, finding: Finding) -> bool:
    """Whether it blames ranks that wait in something of which black boxes have no record."""
    return _is_doubtful(finding, _unrecorded_waits(case))


def _is_doubtful(finding: Finding, unseen: Mapping[int, RankView]) -> bool:
    return finding.kind in ("not_entered", "order") and set(finding.ranks) <= unseen.keys()


def _turn(finding: Finding) -> None:
    """Without their stacks: where most never reached what a few wait in, the few made that call alone.

    Most may have been reducing gradients, of which there is no record.
    """
    story, waiters = finding.story, finding.waiters
    if not finding.unrecorded or waiters is None or not isinstance(story, NeverReached):
        return
    if story.op is None or len(finding.ranks) <= len(waiters.ranks):
        return
    most = tuple(finding.ranks)
    finding.kind, finding.ranks, finding.waiters = "order", list(waiters.ranks), None
    finding.story = InOther(Apart.BEHIND, story.op, most)
    finding.against = [Against("not_entered", most, Why.UNRECORDED_GRADIENTS)]
    finding.gradients, finding.unrecorded = True, False


def _count(draft: Draft, by_ops: Finding) -> None:
    """Which operation a few have passed, or made alone: stacks show the two sides, boxes the call.

    The rest reduces gradients, which are of all ranks: whoever is fewer is at the wrong place.
    """
    lead = draft.by_stacks[0] if draft.by_stacks else None
    if lead is None or by_ops.waiters is None or not isinstance(lead.story, InOther):
        return
    if lead.story.how not in _TWO_SIDES or not isinstance(by_ops.story, NeverReached):
        return
    few, many = set(lead.ranks), set(lead.story.others)
    absent, present = set(by_ops.ranks), set(by_ops.waiters.ranks)
    if (few, many) == (absent, present):
        change = {"how": Apart.AHEAD, "their_op": by_ops.story.op}
        ground = Ground.FEW_AT_GRADIENTS
    elif (few, many) == (present, absent):
        change = {"how": Apart.BEHIND, "op": by_ops.story.op}
        ground = Ground.FEW_NOT_AT_GRADIENTS
    else:
        return
    lead.story = structs.replace(lead.story, **change)
    lead.confidence = sure(ground)
    lead.add_clues(by_ops.clues)
