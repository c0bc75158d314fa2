"""Remarks on the evidence, in words; some of them say why no rank is named."""

from __future__ import annotations

from collections.abc import Iterable

from ..ops.evidence import Note, Remark
from . import gpu_words, terms


def _several_unseen(of: Note) -> str:
    """Why one of several ranks without a dump may be innocent, and what would decide between them."""
    unseen, has = terms.ranks(of.blamed), terms.choose(of.blamed, "has", "have")
    wait = f"{terms.ranks(of.ranks)} {terms.choose(of.ranks, 'waits', 'wait')} for {unseen}"
    return (
        f"{terms.capital(wait)}, which {has} no dump, and the other dumps keep no completed "
        f"operations: one of these may be waiting for another. Find the dumps of {unseen}."
    )


def _many_unseen(of: Note) -> str:
    """Why none of very many ranks without a record is named."""
    waiters = f"{terms.ranks(of.ranks)} {terms.choose(of.ranks, 'waits', 'wait')}"
    return (
        f"Could not tell: {waiters} for some of {len(of.blamed)} ranks that are not seen, each "
        "of which may be waiting for another. Find their dumps or processes, or capture them as well."
    )


def beyond_records(of: Note) -> str:
    """Why ranks with too short a ring of records are not blamed, and what would help next time."""
    unseen, whose = terms.ranks(of.blamed), terms.choose(of.blamed, "its GPU is", "their GPUs are")
    return (
        f"Could not tell: {terms.ranks(of.ranks)} {terms.choose(of.ranks, 'waits', 'wait')} for "
        f"{unseen}, whose records no longer hold what {whose} running. Next time set a larger "
        "TORCH_FR_BUFFER_SIZE (before torch 2.9 TORCH_NCCL_TRACE_BUFFER_SIZE)."
    )


def unseen(notes: Iterable[Note]) -> str:
    """Why the ranks at which waits end are not blamed, "" where no note says so."""
    said = {Remark.BEYOND_RECORDS: beyond_records, Remark.MANY_UNSEEN: _many_unseen}
    return next((said[n.remark](n) for n in notes if n.remark in said), "")


def _in_the_run_before(who: str) -> str:
    """``; in the run before it rank 3 failed``."""
    return f"; in the run before it {who} failed" if who else ""


def note(of: Note) -> str:
    """A remark on the evidence, as a sentence."""
    at = f" in {terms.long_frame(of.frame)}" if of.frame is not None else ""
    who, blamed = terms.ranks(of.ranks), terms.ranks(of.blamed)
    texts = {
        Remark.NO_RECORDS: "No rank has operation records: black boxes or Flight Recorder dumps would show which ranks wait for which.",
        Remark.IN_PASSING: (
            "Several operations were unfinished although all members had entered them: the job was probably making progress. A second capture some seconds later would show it."
        ),
        Remark.ONE_CAPTURE: "No rank waits for another, and there is only one capture: a second one would show whether they move.",
        Remark.SOME_MOVED: "Some ranks moved and the others wait for them: a later capture would show whether that is a hang.",
        Remark.EARLIER_ATTEMPT: f"The last start of the job shows consequences only: the verdict is on start {of.number}.",
        Remark.EARLIER_FAILURE: f"Start {of.number} of the job had ended by a failure of {who}; that is not the cause of the last one's end.",
        Remark.SEVERAL_RUNS: f"These logs are of {of.number} runs, each a job of its own: the verdict is on the last one that shows a failure{_in_the_run_before(who)}.",
        Remark.NO_WAIT: "No rank waits in a recorded operation: see their stacks for what they do instead.",
        Remark.BARE_RANKS: f"There are no operation records of {who}; the reason is unknown.",
        Remark.INFERRED_GROUPS: (
            f"The members of {terms.count(of.number, 'group')} are not recorded and were inferred: the verdict is less sure."
        ),
        Remark.UNRECORDED_WAIT: (
            f"{terms.capital(terms.are(of.ranks)) if of.ranks else ''} in {of.op}{at.replace(' in ', ', ', 1)}, which black boxes do not record: only their stacks were used."
        ),
        Remark.UNNAMED_GROUPS: (
            f"{terms.capital(who)} {terms.choose(of.ranks, 'waits', 'wait')} in operations of groups without a record of their members (rank {min(of.ranks, default=0)}: {of.op} #{of.number}), so it is unknown which ranks they wait for. See their stacks."
        ),
        Remark.STACKS_DISAGREE: (
            f"Stacks and operations disagree: by their stacks {terms.are(of.ranks)} not in the operation{at.replace(' in ', ' but in ', 1)}, by operations {blamed} is the cause; the verdict follows the operations."
        ),
        Remark.LOG_DISAGREES: f"The log contradicts the other evidence: one names {who}, the other {blamed}; the verdict follows the more certain one.",
        Remark.RECORDS_DISAGREE: (
            f"The black boxes and the Flight Recorder dumps contradict each other: one names {who}, the other {blamed}. "
            "Check that they are of the same job and moment."
        ),
        Remark.RECORDER_DISAGREES: _two_records(of),
        Remark.LOG_SAW_IT_WAIT: _saw_it_wait(of),
        Remark.SEVERAL_UNSEEN: _several_unseen(of),
        Remark.BEYOND_RECORDS: beyond_records(of),
        Remark.MANY_UNSEEN: _many_unseen(of),
        Remark.PASS_FAILED: (
            f"A step of the diagnosis failed by an error in hangdoctor{at} ({of.op}): the verdict does not include it. Please report it with the bundle."
        ),
        Remark.GPU_STANDS_OUT: gpu_words.stands_out(of),
        Remark.GPU_ERROR: gpu_words.error(of),
    }
    return texts[of.remark]


def _two_records(of: Note) -> str:
    """Which of the two records of the same processes counts what, and which one is followed."""
    boxes, recorder = (of.ranks, of.blamed) if of.op == "recorder" else (of.blamed, of.ranks)
    one, other = terms.are(boxes), terms.are(recorder)
    text = f"By the black boxes {one} the cause, by torch's own recorder {other}."
    if of.op == "recorder":
        why = "a rank waits in a call that C++ began, which no box counts"
        return f"{text} Of the two the recorder decides: {why}."
    why = "they have each call of the program with its line; the recorder has what C++ begins, too, but with gloo no send or recv"
    return f"{text} Of the two the black boxes decide: {why}."


def _saw_it_wait(of: Note) -> str:
    who = terms.ranks(of.ranks)
    same = set(of.ranks) == set(of.blamed)
    blamed = terms.choose(of.ranks, "it", "they") if same else terms.ranks(of.blamed)
    is_are = terms.choose(of.blamed, "is", "are")
    return (
        f"The log contradicts the other evidence: by it {who} timed out in the operation that "
        f"{blamed} {is_are} said not to have reached."
    )
