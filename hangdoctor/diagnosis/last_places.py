"""Pass: of a job that is over, what the stacks allow that heartbeats saw last.

They are one thread's place each, without counts, lines that are passed again and again, and motion:
a rank in its own code while the others wait is outside; nothing else follows from them alone.
"""

from __future__ import annotations

from msgspec import structs

from ..stacks.place_search import STORE
from .case import Case
from .compiled_calls import all_in_jax, all_in_mpi, asks_jax
from .confidence import Limit
from .draft import Draft
from .file_locks import STORIES
from .findings import (
    Apart,
    Clue,
    DidNotRun,
    Died,
    Finding,
    InOther,
    NotJoined,
    OwesAnswer,
    PrintedAtLimit,
    SeenByHeartbeat,
    WaitsIn,
)
from .recorders import by_recorder, records_of

_NOT_AT_IT = (Apart.AHEAD, Apart.BEHIND)
_OUTSIDE = frozenset({"not_entered", "busy", "data_wait", "checkpoint_wait"})


def run(case: Case, draft: Draft) -> None:
    """Drops findings that need more than a place, and says which stacks are meant."""
    if case.capture.by_guard:
        for finding in draft.findings:
            mark(case, finding)
    if not case.capture.by_heartbeat:
        return
    alone = [finding for finding in draft.findings if not _is_counted(finding)]
    if alone and not _decide(case, alone):
        draft.findings = [finding for finding in draft.findings if _is_counted(finding)]
    for finding in draft.findings:
        _add_line(case, finding)
        if any(clue.source == "stack" for clue in finding.clues):
            mark(case, finding)


def _add_line(case: Case, finding: Finding) -> None:
    """Where the records have no lines, as those of torch's own recorder: that of the place."""
    known = finding.frame is not None or finding.where.frame
    if known or len(finding.ranks) != 1 or not by_recorder(case):
        return
    frame = next((v.place.frame for v in case.views if v.rank == finding.ranks[0]), None)
    if frame is not None:
        finding.frame, finding.where.frame = frame, str(frame)


def _is_counted(finding: Finding) -> bool:
    seen = isinstance(finding.story, Died)  # by its parent
    by_lock = isinstance(finding.story, STORIES)  # the kernel says who holds it
    return seen or by_lock or any(clue.source == "ops" for clue in finding.clues)


def _decide(case: Case, alone: list[Finding]) -> bool:
    """Whether all ranks were seen, most of them wait, and the few others are elsewhere; or all that
    were seen wait in the set-up for those that were not.
    """
    if case.absent and all(isinstance(finding.story, NotJoined) for finding in alone):
        return all(view.place.kind == "start" for view in case.alive)
    if case.absent or case.unread:
        return False
    if all(isinstance(finding.story, OwesAnswer) for finding in alone):
        return True  # no other rank waits for one of these two
    if case.waiting and all_in_mpi(case.waiting):
        return True  # the same stacks as of a living job, and in all that time they ran no Python
    if _records_lack_only(case, {rank for finding in alone for rank in finding.ranks}):
        return True
    if all(_stands_apart(finding) or finding.kind == "end_stall" for finding in alone):
        # At which no thread had worked for long.
        return all(all_in_jax([view]) or asks_jax(view) for view in case.waiting)
    if any(finding.kind not in _OUTSIDE for finding in alone):
        return False
    return len({rank for finding in alone for rank in finding.ranks}) <= len(case.waiting)


def _records_lack_only(case: Case, ranks: set[int]) -> bool:
    """Whether, by torch's own recorders, all others wait in one operation to which these did not come: of
    one that waits in what none of them counts, its place shows where it is instead.
    """
    if not case.capture.recorded_beside:
        return False
    records, _ = records_of(case)
    open_in = {rank: {(o.group, o.seq) for o in ops.unfinished()} for rank, ops in records.items()}
    others = [found for rank, found in open_in.items() if rank not in ranks]
    alike = bool(others) and len(others[0]) == 1 and all(found == others[0] for found in others)
    return alike and len(open_in) == case.world_size and not any(open_in[r] for r in ranks)


def _stands_apart(finding: Finding) -> bool:
    """Whether it is one of the few, or not at the line at which the others wait for a key: past it,
    or in the next round before it.
    """
    story = finding.story
    if not isinstance(story, InOther):
        return False
    for_key = story.their_op is not None and story.their_op.name == STORE
    return story.how is Apart.SMALLER_SIDE or (story.how in _NOT_AT_IT and for_key)


def mark(case: Case, finding: Finding) -> None:
    """Say which stacks are meant. Evidence from two samples is none here: a heartbeat sees a place,
    not whether it ran.
    """
    kept = [clue for clue in finding.clues if not isinstance(clue.fact, DidNotRun)]
    finding.clues = [_without_motion(clue) for clue in kept]
    seen = tuple(v.rank for v in case.views if v.capture.samples)
    by_guard = case.capture.by_guard
    if by_guard:  # a log has no state of processes
        finding.clues = [clue for clue in finding.clues if clue.source != "proc"]
    finding.clues.append(Clue("stack", seen, PrintedAtLimit() if by_guard else SeenByHeartbeat()))
    if not _is_counted(finding):
        finding.confidence = min(finding.confidence, Limit.BY_HEARTBEAT.highest)


def _without_motion(clue: Clue) -> Clue:
    fact = clue.fact
    if isinstance(fact, WaitsIn):
        return structs.replace(clue, fact=structs.replace(fact, still=()))
    return clue
