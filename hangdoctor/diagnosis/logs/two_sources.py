"""A job's log and its black boxes, read as one: whether each of them alone names the same ranks."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from ...model.log_facts import JobLogs
from ..confidence import Less, lowered
from ..draft import Draft
from ..findings import Clue, Finding
from ..findings.log_stories import LogAgrees, LogContradicts, Source
from ..ops.evidence import Note, Remark
from .candidate import First
from .scene import Scene, open_scene


def compare(
    logs: JobLogs, draft: Draft, finding: Finding, decide: Callable[[Scene], First | None]
) -> None:
    """Says of a finding of both together what each alone says, where both name ranks."""
    by_log, by_boxes = _alone(logs, decide, boxes=False), _alone(logs, decide, boxes=True)
    if by_log is None or by_boxes is None or not finding.ranks:
        return
    if by_log.kind == by_boxes.kind and set(by_log.ranks) == set(by_boxes.ranks):
        _say(draft, finding, by_log, "both")
        return
    for source, found in (("log", by_log), ("boxes", by_boxes)):
        _say(draft, finding, found, source)  # type: ignore[arg-type]


def _alone(logs: JobLogs, decide: Callable[[Scene], First | None], boxes: bool) -> Finding | None:
    """What one of the two names in the last attempt; None where it names no rank."""
    own = set(logs.of_boxes)
    facts = [fact for fact in logs.facts if (fact.file in own) == boxes]
    if not facts or not own:
        return None
    found = decide(open_scene(structs.replace(logs, facts=facts), logs.attempts - 1))
    return found.finding if found is not None and found.finding.ranks else None


def _say(draft: Draft, finding: Finding, found: Finding, source: Source) -> None:
    ranks = tuple(found.ranks)
    if set(ranks) == set(finding.ranks):
        finding.add_clues([Clue("log", ranks, LogAgrees(found.kind, ranks, source=source))])
        return
    blamed = tuple(finding.ranks)
    finding.add_clues([Clue("log", ranks, LogContradicts(found.kind, ranks, source=source))])
    if set(ranks).isdisjoint(blamed):
        finding.confidence = lowered(finding.confidence, Less.LOG_DISAGREES)
        draft.notes.append(Note(Remark.LOG_DISAGREES, ranks, blamed=blamed))
