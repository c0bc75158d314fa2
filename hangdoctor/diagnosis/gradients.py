"""What DistributedDataParallel does in C++: all_reduces of gradients, which stacks show and no
black box records.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from ..stacks.place_search import GRADIENTS
from .case import Case, op_of
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
    doubtful = [one for one in findings if _is_doubtful(one, unseen)]
    dropped = [one for one in doubtful if not _left_out(one, unseen)]
    for finding in [one for one in doubtful if one not in dropped]:
        _say_skipped(finding, unseen)
    if not dropped:
        return
    draft.ops.findings = [one for one in findings if one not in dropped]
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
    unseen = _unrecorded_waits(case)
    return _is_doubtful(finding, unseen) and not _left_out(finding, unseen)


def _is_doubtful(finding: Finding, unseen: Mapping[int, RankView]) -> bool:
    return finding.kind in ("not_entered", "order") and set(finding.ranks) <= unseen.keys()


def _left_out(finding: Finding, unseen: Mapping[int, RankView]) -> bool:
    """Whether others that wait in the same have each made their call at the line that these have not
    reached, in groups of their own: then it was left out, and not what it now waits for.
    """
    story = finding.story
    if not isinstance(story, NeverReached) or story.op is None or not story.op.site:
        return False
    blamed = set(finding.ranks)
    waits_in = {unseen[rank].place.op for rank in blamed}
    others = [r for r, view in unseen.items() if r not in blamed and view.place.op in waits_in]
    last = {rank: _last_at(view, story.op.site) for rank, view in unseen.items()}
    made = bool(others) and all(last[rank] >= story.op.seq for rank in others)
    return made and all(last[rank] < story.op.seq for rank in blamed)


def _say_skipped(finding: Finding, unseen: Mapping[int, RankView]) -> None:
    """Where the ranks wait instead."""
    story, waiters = finding.story, finding.waiters
    if isinstance(story, NeverReached) and waiters is not None:
        finding.kind = "order"
        mine = op_of([unseen[rank] for rank in finding.ranks])
        finding.story = InOther(Apart.AHEAD, mine, tuple(waiters.ranks), story.op)


def _last_at(view: RankView, site: str) -> int:
    """The number of a rank's last call at a line, -1 for none that is kept."""
    operations = view.capture.ops.operations if view.capture.ops is not None else []
    return next((op.seq for op in reversed(operations) if op.site == site), -1)


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
