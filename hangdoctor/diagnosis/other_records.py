"""Pass: files of ranks that have both, a black box and a dump of torch's recorder: whether each kind
alone names the same ranks.
"""

from __future__ import annotations

from msgspec import structs

from ..model.operations import RankOps
from .case import Case
from .confidence import Less, agreed, lowered
from .draft import Draft
from .findings import Clue, Finding
from .findings.log_stories import LogAgrees, LogContradicts, Source
from .gradients import cannot_know
from .operations import gather
from .ops import diagnose_ops
from .ops.evidence import Note, Remark
from .recorders import by_recorder


def run(case: Case, draft: Draft) -> None:
    """Compare the verdict of the operations with what the other records say."""
    others = _other_records(case)
    if not others or not draft.findings:
        return
    evidence = structs.replace(gather(case, draft.facts), ops=others, earlier={})
    source: Source = "boxes" if by_recorder(case) else "dumps"
    named = [f for f in diagnose_ops(evidence).findings if _names(f)]
    if source == "boxes":
        named = [f for f in named if not cannot_know(case, f)]
    if not named:
        return
    for finding in [f for f in draft.findings if _names(f)]:
        if _contradict(finding, named, source):
            draft.notes.append(_note(case, finding, named[0], source))


def _names(finding: Finding) -> bool:
    return bool(finding.ranks) and finding.kind != "in_communication"


def _other_records(case: Case) -> dict[int, RankOps]:
    """Of each rank the records that the diagnosis does not read; {} where a rank has none."""
    if case.capture.origin != "files":
        return {}
    captures = [view.capture for view in case.views]
    both = [c for c in captures if c.ops is not None and c.recorded is not None]
    if len(both) < len(captures):
        return {}
    recorders = by_recorder(case)
    found = {c.rank: c.ops if recorders else c.recorded for c in both}
    return {rank: ops for rank, ops in found.items() if ops is not None}


def _contradict(finding: Finding, named: list[Finding], source: Source) -> bool:
    """Whether the other records name none of the finding's ranks; they are its evidence, either way."""
    blamed = set(finding.ranks)
    same = next((f for f in named if set(f.ranks) == blamed), None)
    if same is not None:
        ranks = tuple(same.ranks)
        finding.add_clues([Clue("ops", ranks, LogAgrees(same.kind, ranks, source=source))])
        finding.confidence = agreed(finding.confidence, same.confidence)
        return False
    other = named[0]
    ranks = tuple(other.ranks)
    if not blamed.isdisjoint(ranks):
        return False
    finding.add_clues([Clue("ops", ranks, LogContradicts(other.kind, ranks, source=source))])
    finding.confidence = lowered(finding.confidence, Less.STACKS_DISAGREE)
    return True


def _note(case: Case, finding: Finding, other: Finding, source: Source) -> Note:
    ranks, blamed = tuple(other.ranks), tuple(sorted(finding.ranks))
    if not case.capture.recorded_beside:
        return Note(Remark.RECORDS_DISAGREE, ranks, blamed=blamed)
    follows = "recorder" if source == "boxes" else "boxes"
    return Note(Remark.RECORDER_DISAGREES, ranks, op=follows, blamed=blamed)
