"""Of a job that is over, a log beside its black boxes: never a worse verdict than that of the boxes.

Boxes have the operations and the end of each rank; a log has what was printed, by whichever rank
noticed something. Where the two together name other ranks than the boxes alone, the boxes are
followed, and the report says what the log names.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

from msgspec import structs

from ...model.log_facts import Ended, JobLogs, PythonError
from ..case import Case
from ..confidence import Less, lowered
from ..draft import Draft
from ..findings import Clue, Finding
from ..findings.log_stories import LogContradicts, LoggedDeath
from ..ops.evidence import Note, Remark

Judge = Callable[[Case, Draft], None]


def by_boxes_alone(case: Case, draft: Draft, judge: Judge) -> Draft | None:
    """The draft as it would be without the log; None where there is only one of the two."""
    logs = case.capture.logs
    if logs is None or not case.capture.over or not (_has_boxes(case) or logs.of_boxes):
        return None
    own = set(logs.of_boxes)
    facts = [fact for fact in logs.facts if fact.file in own]
    if len(facts) == len(logs.facts):
        return None
    alone = copy.deepcopy(draft)
    if facts:
        judge(_with(case, structs.replace(logs, facts=copy.deepcopy(facts))), alone)
    return alone


def _has_boxes(case: Case) -> bool:
    every = [view.capture.ops for view in case.views]
    return any(ops is not None and ops.source == "blackbox" for ops in every)


def _with(case: Case, logs: JobLogs) -> Case:
    return structs.replace(case, capture=structs.replace(case.capture, logs=logs))


def prefer(case: Case, alone: Draft, draft: Draft) -> None:
    """Take the verdict of the boxes where it names ranks, and both together name others or none."""
    by_boxes, together = _named(alone.findings), _named(draft.findings)
    lost = any(finding.kind == "unreachable" for finding in draft.findings)
    same = by_boxes == together and not _was_swept(case, alone.findings, draft.findings)
    if not by_boxes or same or lost:
        return
    printed = [clue for finding in draft.findings for clue in finding.clues if clue.source == "log"]
    for finding in alone.findings:
        finding.add_clues(printed)
    if together and by_boxes != together:
        _contradict(alone.findings, draft.findings[0], tuple(sorted(together)))
        who = tuple(sorted(together)), tuple(sorted(by_boxes))
        alone.notes.append(Note(Remark.LOG_DISAGREES, who[0], blamed=who[1]))
    draft.findings, draft.status = alone.findings, alone.status
    draft.waits, draft.notes, draft.remaining = alone.waits, alone.notes, None


def _was_swept(case: Case, by_boxes: list[Finding], together: list[Finding]) -> bool:
    """Whether the log has as a death by SIGKILL what the boxes have as a rank that did not run, or
    did not come, while the others waited: a launcher kills who does not end at a SIGTERM, after the
    first of these.
    """
    deaths = [f.story for f in together if f.kind == "dead"]
    kills = [s for s in deaths if isinstance(s, LoggedDeath) and s.end.code == -9 and not s.memory]
    if not kills or len(kills) < len(together) or any(f.kind == "dead" for f in by_boxes):
        return False
    facts = case.capture.logs.facts if case.capture.logs is not None else []
    ranks = {rank for finding in together for rank in finding.ranks}
    ends = [f for f in facts if isinstance(f, Ended | PythonError) and f.at > 0]
    own = [f.at for f in ends if f.rank in ranks]
    others = [f.at for f in ends if f.rank >= 0 and f.rank not in ranks]
    return bool(own) and bool(others) and min(own) >= min(others)


def _named(findings: list[Finding]) -> set[int]:
    """The ranks that are to blame: all members of an operation are not."""
    return {rank for f in findings if f.kind != "in_communication" for rank in f.ranks}


def _contradict(findings: list[Finding], other: Finding, ranks: tuple[int, ...]) -> None:
    fact = LogContradicts(other.kind, ranks, source="log")
    for finding in findings:
        finding.add_clues([Clue("log", ranks, fact)])
        finding.confidence = lowered(finding.confidence, Less.LOG_DISAGREES)
