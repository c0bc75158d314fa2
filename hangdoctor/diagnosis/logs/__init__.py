"""Pass: what the job's own output tells, when the job is over or when nothing else was collected.

The order of reasons: what failed by itself before the first wait reached its limit; what torch
names; counters of the group that timed out; who did not time out. What remains is unknown, and the
report says what would have decided it.
"""

from __future__ import annotations

from msgspec import structs

from ...model.diagnosis import Status
from ...model.log_facts import KnownError, PythonError
from ..case import Case
from ..draft import Draft
from ..findings import Clue, Finding, InOther, StillIn
from ..findings.log_places import PrintedOtherwise, TookOther
from ..findings.log_remaining import LogRemaining, Undecided
from ..findings.log_stories import FailedFirst, FailedInWords, LinkBroken, OtherCall, WentOn
from ..gloo_alone import has_no_recorder
from ..ops.evidence import Note, Remark
from ..ras_counts import all_equal
from . import (
    apart,
    boxes_first,
    by_torch,
    called_apart,
    compared,
    counters,
    nccl_apart,
    over,
    two_sources,
)
from .apart_in_table import apart_in_table
from .asked import asks
from .awaited import awaited
from .beside import CRASH, clear_who_waited, weigh
from .beside_lines import name_beside
from .by_stacks import by_stacks
from .by_values import by_values
from .candidate import First, quotes, whose
from .chain import chain
from .counting import at_work, counted_on
from .error_findings import mesh
from .first import failure, lost_node
from .independent import others_of_their_own
from .last_words import add_last_words
from .late_end import still_running
from .launchers_word import by_the_launcher
from .listed import listed
from .met_apart import met_apart
from .odd_words import told_apart
from .only_one_left import of_the_only_one
from .other_size import took_other
from .outside import cut_off, from_outside
from .own_word import by_own_word
from .printed_otherwise import (
    add_last_line,
    alike_instead,
    all_gave_up,
    alone_in_print,
    gone_by_its_print,
    got_going,
    of_no_rank,
    of_one_alone,
)
from .raised_later import add_own_error
from .scene import LIMITS, Scene, open_scene
from .still_preparing import still_preparing
from .store_gone import host_left
from .submitted_apart import different_calls
from .threads import add_ended_threads, of_thread
from .took_longer import outlasted
from .unanswered import who_took_nothing
from .undecided import why_none
from .unnamed_stacks import elsewhere
from .unread_failures import before_the_loss, in_unread_words, in_words_before, is_cut, named_beside
from .went_on import went_on

_GAVE_UP = ("mpi_daemon", "mpi_daemon_gone", "launch_usage")  # rules of a launcher's last words
_FAILED = CRASH | {"end_stall"}
_NO_FAILURE = frozenset({Undecided.SIGNALLED, Undecided.GOES_ON, Undecided.NO_END})
_SETTLED = frozenset({Undecided.ENDED_CLEANLY, Undecided.GOES_ON, Undecided.CANCELLED})


def run(case: Case, draft: Draft) -> None:
    """The verdict of the logs, where nothing else has one; else their evidence beside it."""
    alone = boxes_first.by_boxes_alone(case, draft, _judge)
    _judge(case, draft)
    if alone is not None:
        boxes_first.prefer(case, alone, draft)


def _judge(case: Case, draft: Draft) -> None:
    logs = case.capture.logs
    if logs is None:
        if case.capture.over:  # all was killed at once, `hangdoctor run` too
            draft.remaining = called_apart.leave_open(case, draft)
            _unless_cut_off(case, draft)
        return
    scene = open_scene(logs, logs.attempts - 1)
    found = decide(scene)
    if case.capture.over:
        clear_who_waited(draft, scene)
        found = _after_the_end(case, draft, scene, found)
    if found is None and not (case.capture.over and (draft.findings or draft.remaining)):
        scene, found = _earlier(case, draft, scene)
    if scene.logs.attempts > 1:
        _tell_earlier(draft, scene)
    if found is not None and not case.capture.over:
        add_last_words(scene, found)
        add_last_line(scene, found)
        add_own_error(scene, found)
    further = others_of_their_own(scene, found)
    draft.chain = chain(scene, [*([found] if found is not None else []), *further])
    for first in [*([found] if found is not None else []), *further]:
        first.finding.clues += _clues(scene, first)
    if draft.findings:
        weigh(draft, scene, found)
        add_ended_threads(draft, scene)
        return
    found = _or_in_words(case, draft, scene, found)
    if found is None:
        return
    for first in [found, *further]:
        name_beside(scene, first)
    two_sources.compare(logs, draft, found.finding, decide)
    draft.findings = [found.finding, *(first.finding for first in further)]
    draft.findings += over.elsewhere_beside(case, found)
    raised = isinstance(found.finding.story, LinkBroken) and _raised(scene)
    draft.status = "failed" if raised else _status_of(found.finding)


def _or_in_words(case: Case, draft: Draft, scene: Scene, found: First | None) -> First | None:
    """What the rules found, else what stands in words that none of them knows, else nothing but why."""
    if found is not None:
        return _by_plain_words(case, draft, scene, found)
    why = why_none(scene)
    found = _in_unread_words(case, draft, scene, why)
    if found is None:
        _say_why_none(case, draft, scene, why)
    return found


def _by_plain_words(case: Case, draft: Draft, scene: Scene, found: First) -> First:
    """The words right before a traceback that lacks its last line, or those on one rank before several called
    MPI_Abort, of a job that nothing else shows; else what was found.
    """
    told = None
    if not (case.capture.over or case.views):
        told = in_words_before(scene, found) if is_cut(found) else named_beside(scene, found)
        told = told or before_the_loss(scene, found)
    return _alone(draft, scene, told) if told is not None else found


def _in_unread_words(case: Case, draft: Draft, scene: Scene, why: LogRemaining) -> First | None:
    """What a log alone says in words that no rule knows, or as a launcher saw it, of a job that nothing
    else shows.
    """
    if case.capture.over or case.views or draft.remaining is not None:
        return None
    found = in_unread_words(scene, why) or by_the_launcher(scene, why)
    return _alone(draft, scene, found) if found is not None else None


def _alone(draft: Draft, scene: Scene, found: First) -> First:
    """The candidate with its chain and lines, where it is the only one."""
    draft.chain = chain(scene, [found])
    found.finding.clues += _clues(scene, found)
    return found


def _status_of(finding: Finding) -> Status:
    failed = finding.kind in _FAILED or isinstance(finding.story, FailedFirst | FailedInWords)
    failed |= isinstance(finding.story, OtherCall) and finding.story.raised
    failed |= isinstance(finding.story, PrintedOtherwise | TookOther) and finding.kind in (
        "mismatch",
        "error",
    )
    failed |= isinstance(finding.story, LinkBroken) and finding.kind == "in_communication"
    if failed and not isinstance(finding.story, StillIn):
        return "failed"
    return "slow" if finding.kind == "slow" else "hang"


def _raised(scene: Scene) -> bool:
    """Whether an exception ended a process, or a launcher gave up, and no time-out: then nothing waits."""
    if any(f.rule in _GAVE_UP for f in scene.of(KnownError)):
        return True
    errors = [f for f in scene.of(PythonError) if f.error and not f.survived]
    waited = scene.first_wait < len(scene.facts)
    return bool(errors) and not waited and not any(f.rule in LIMITS for f in errors)


def _unless_cut_off(case: Case, draft: Draft) -> None:
    """Without any exit, where nothing else is found."""
    if draft.findings or draft.remaining is not None:
        return
    draft.remaining = cut_off(case)
    if draft.remaining is not None:
        draft.status = "unknown"  # one of them may have died, and the others after it


def _after_the_end(case: Case, draft: Draft, scene: Scene, found: First | None) -> First | None:
    """What the ends still name, beside what the operations show of the time before them."""
    if draft.findings:
        found = over.settle(case, draft, scene, found)
    else:
        found = _unless_it_went_on(case, scene, over.without_words(found))
        found = found or went_on(case, scene) or still_running(case, scene)
        found = found or _behind(case, scene)
        parted = _who_parted(case, found)
        if parted is not None:
            draft.findings, draft.status, found = [parted], "failed", None
    found = called_apart.look_back(case, draft, scene, found)
    open_sides = called_apart.leave_open(case, draft)
    by_lines = found is not None and isinstance(found.finding.story, InOther)
    if by_lines and open_sides is not None and open_sides.reason is Undecided.TWO_SIDES:
        found = None  # the records show another reason, two sides of one operation
    if found is None or found.finding.kind not in CRASH:
        found = over.did_not_run(case, draft, scene) or found
    at_work(case, draft, scene)
    over.say_where(draft, scene)
    draft.remaining = (draft.remaining or open_sides) if found is None else None
    return found


def _who_parted(case: Case, found: First | None) -> Finding | None:
    """By the operations, whose engine is imported only where ranks went on without others."""
    if found is None or not isinstance(found.finding.story, WentOn):
        return None
    from .ended_short import who_parted

    return who_parted(case, found)


def _unless_it_went_on(case: Case, scene: Scene, found: First | None) -> First | None:
    """Without a hang, where all ranks made progress until they were ended from outside: where an
    interrupt met them is chance.
    """
    if found is None or (found.finding.kind in CRASH and not any(map(of_thread, found.facts))):
        return found
    outside = from_outside(case, scene)
    steady = outside is not None and outside.reason is Undecided.FROM_OUTSIDE
    return None if steady else found


def _behind(case: Case, scene: Scene) -> First | None:
    """Who had printed fewer steps, or was met elsewhere by Ctrl-C, in a job that was idle when it was
    ended from outside.
    """
    outside = from_outside(case, scene)
    idle = outside is not None and outside.reason is Undecided.FROM_OUTSIDE_IDLE
    return (apart.behind(scene) or apart.interrupted(scene, idle=True)) if idle else None


def _tell_earlier(draft: Draft, last: Scene) -> None:
    """The failure that ended the start before, as history: it is no cause of the last one's end."""
    before = last.logs.attempts - 2
    told = (Remark.EARLIER_ATTEMPT, Remark.SEVERAL_RUNS)
    if before < 0 or any(note.remark in told for note in draft.notes):
        return
    found = decide(open_scene(last.logs, before))
    if last.logs.runs > 1:
        ranks = tuple(found.finding.ranks) if found is not None else ()
        draft.notes.append(Note(Remark.SEVERAL_RUNS, ranks, number=last.logs.runs))
        return
    if found is not None and found.finding.ranks and found.finding.kind in CRASH:
        ranks = tuple(found.finding.ranks)
        draft.notes.append(Note(Remark.EARLIER_FAILURE, ranks, number=before + 1))


def _say_why_none(case: Case, draft: Draft, scene: Scene, why: LogRemaining) -> None:
    outside = from_outside(case, scene) if case.capture.over else None
    if draft.remaining is None and case.capture.over and draft.status == "healthy":
        draft.status = None  # of ranks that have ended; what ended them decides
    why = structs.replace(
        why, ras=all_equal(case), no_recorder=has_no_recorder(case), stacked=bool(case.views)
    )
    if case.capture.over and outside is None and why.reason in _NO_FAILURE:
        outside = cut_off(case)
    draft.remaining = draft.remaining or outside or why
    clean = draft.remaining.reason is Undecided.ENDED_CLEANLY
    clean = clean and (not case.views or (case.capture.over and bool(scene.by_boxes())))
    well = clean or draft.remaining.reason is Undecided.FROM_OUTSIDE
    draft.status = "healthy" if well else draft.status or "unknown"


def _earlier(case: Case, draft: Draft, last: Scene) -> tuple[Scene, First | None]:
    """Where the last attempt shows consequences only: the one before it, and so on."""
    why = why_none(last).reason
    settled = why in _SETTLED or (why is Undecided.NO_END and got_going(last))
    settled = settled and last.logs.runs == 1
    if settled or (case.capture.over and from_outside(case, last) is not None):
        return last, None
    for attempt in range(last.logs.attempts - 2, -1, -1):
        scene = open_scene(last.logs, attempt)
        found = decide(scene)
        if found is not None:
            note = Note(Remark.EARLIER_ATTEMPT, number=attempt + 1)
            if last.logs.runs > 1:
                note = Note(Remark.SEVERAL_RUNS, number=last.logs.runs)
            draft.notes.append(note)
            return scene, found
    return last, None


def decide(scene: Scene) -> First | None:
    """What the logs name; None where they name no rank."""
    node = lost_node(scene)
    if node is not None:
        return node
    stuck = elsewhere(scene)
    if stuck is not None:
        return stuck
    first = failure(scene)
    table = by_values(scene, first)
    if table is not None:
        return table
    if first is not None and first.named:
        instead = awaited(scene, first) or told_apart(scene, first)
        instead = instead or alike_instead(scene, first) or of_one_alone(scene, first)
        return instead or took_other(scene, of_no_rank(scene, first))
    named = _named(scene)
    if first is None or (named is not None and named.finding.ranks):
        joined = of_the_only_one(scene, first, named) if first and named else None
        return joined or named
    return took_other(scene, of_no_rank(scene, first))


def _named(scene: Scene) -> First | None:
    """By the strength of the reason."""
    for reason in (
        by_torch.desync,
        different_calls,
        by_torch.barrier,
        who_took_nothing,
        compared.mismatch,
        nccl_apart.called_apart,
        by_torch.store,
        counters.judged,
        counted_on,
        still_preparing,
        counters.gloo,
        asks,
        apart.left,
        apart.guarded,
        apart.interrupted,
        met_apart,
        apart_in_table,
        listed,
        by_stacks,
        by_torch.peer,
        host_left,
        outlasted,
        by_torch.all_joined,
        by_own_word,
        alone_in_print,
        gone_by_its_print,
        all_gave_up,
        counters.everyone_waits,
        mesh,
    ):
        found = reason(scene)
        if found is not None:
            return of_no_rank(scene, found)
    return None


def _clues(scene: Scene, found: First) -> list[Clue]:
    """The lines that show it."""
    clues = []
    for fact in quotes(found.facts):
        clues.append(Clue("log", whose(fact, found.finding), scene.quote(fact)))
    return clues


__all__ = ["decide", "run"]
