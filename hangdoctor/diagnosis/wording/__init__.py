"""Findings into words: the last step of a diagnosis. What is said here is never read again.

`docs/voice.md` has the words and the pattern: who, what it did or did not do, where it is; who has
been waiting since when.
"""

from __future__ import annotations

from msgspec import structs

from ...model.diagnosis import Cause
from ...model.frame import Frame
from .. import findings as f
from ..findings import Finding
from ..findings.log_stories import StoppedRunning
from . import advice_on_operations as advice_on_operations
from . import differences, stories, terms
from . import lock_words as lock_words
from . import log_advice as log_advice
from . import log_death_words as log_death_words
from . import log_device_words as log_device_words
from . import log_evidence as log_evidence
from . import log_failed_words as log_failed_words
from . import log_place_words as log_place_words
from . import log_unread_words as log_unread_words
from . import log_words as log_words
from . import ras_words as ras_words
from . import set_up_words as set_up_words
from . import stack_words as stack_words
from . import start_words as start_words
from . import stopped_words as stopped_words
from . import unnamed_words as unnamed_words
from .advice import advice
from .clues import evidence
from .held import holding
from .reasons import alternative

LONGEST = terms.LONGEST
_LEFT_OUT = " …: "
_LAST = 60  # characters of a log's line
_NAME = 30  # of a thread's name
_REASON = 50  # of an error's own words
_SHORT_DOUBT = "It may only be slow."


def cause(finding: Finding) -> Cause:
    """The finding as the report has it, in words."""
    return Cause(
        kind=finding.kind,
        ranks=finding.ranks,
        nodes=finding.nodes,
        confidence=round(finding.confidence, 2),
        summary=summary(finding),
        where=finding.where,
        evidence=[evidence(clue) for clue in finding.clues],
        alternatives=[alternative(against, finding) for against in finding.against],
        advice=advice(finding),
        difference=f.difference(finding.story),
    )


def summary(finding: Finding) -> str:
    """The sentence: what fits into `LONGEST` characters, the most important first."""
    doubt = _doubt(finding)
    finding = _without_callers(finding, LONGEST - len(doubt) - 2)
    head = stories.head(finding)
    place, held = _place(finding), holding(finding.holding)
    long, short = _waiting(finding, full=True), _waiting(finding, full=False)
    choices = [
        (place, held, long, doubt),
        (place, held, short, doubt),
        ("", held or place, short, doubt),
        (held or place, "", "", doubt),
        (held or place, "", "", doubt and _SHORT_DOUBT),
        ("", held, short, doubt),
    ]
    for first, second, *after in choices:
        clauses = "; ".join(p for p in (head, first, second) if p) + "."
        text = " ".join(p for p in (clauses, *after) if p)
        if len(text) <= LONGEST:
            return text
    return f"{_cut(head, LONGEST - len(doubt) - 2)} {doubt}".rstrip()


def _without_callers(finding: Finding, room: int) -> Finding:
    """Where the head is too long: of a call that was left out its own caller stays longest, else that
    of the rank's call.
    """
    story = finding.story
    if not isinstance(story, f.Diverged | f.Disagrees) or len(stories.head(finding)) <= room:
        return finding
    skipped = isinstance(story, f.Diverged) and story.how == "skipped"
    mine, theirs = _without_caller(story.mine), _without_caller(story.theirs)
    some = structs.replace(story, mine=mine) if skipped else structs.replace(story, theirs=theirs)
    for shorter in (some, structs.replace(story, mine=mine, theirs=theirs)):
        finding = structs.replace(finding, story=shorter)
        if len(stories.head(finding)) <= room:
            break
    return finding


def _without_caller(op: f.Op | None) -> f.Op | None:
    return structs.replace(op, called_from=None) if op is not None else None


def _cut(head: str, room: int) -> str:
    """The head and its full stop; what it claims, behind the last colon, is kept before all else."""
    head = terms.without_folders(head)
    if len(head) < room:
        return f"{head}."
    facts, colon, claim = head.rpartition(": ")
    if colon and len(claim) < room // 2:
        if len(facts) <= room - len(claim) - len(colon):
            return f"{head}."
        begin = facts[: room - len(claim) - len(_LEFT_OUT)].rpartition(" ")[0]
        begin = begin.rstrip(" …").removesuffix(" in")
        return f"{begin}{_LEFT_OUT}{claim}."
    short = terms.cut(head, room)
    return short if short.endswith("…") else f"{short}."


def _place(finding: Finding) -> str:
    """``it is sleeping in load_batch (data.py:40)``; "" where the head says it, or nothing is
    known.
    """
    if finding.crashed_in is not None:
        return f"the stack given beside the log is in {terms.frame(finding.crashed_in)}"
    if finding.raised is not None:
        own = finding.raised
        at = f" in {terms.frame(own.frame)}" if own.frame is not None else ""
        says = terms.cut(own.says, _REASON).rstrip(".")
        says = f": {says}" if says else ""
        if own.thread:
            return f"its thread '{terms.cut(own.thread, _NAME)}', it seems, had ended with {own.error}{at}"
        return f"it raised {own.error}{at} later{says}"
    if finding.printed is not None:
        last = finding.printed
        at = f"{terms.tail(last.file, _LAST)}:{last.line}"
        return f"it printed last '{terms.cut(last.says, _LAST)}' ({at})"
    if finding.amount is not None:
        of = finding.amount
        return f"it has {of.name}={of.number}, the others {of.usual}"
    if finding.left_loop is not None:
        return differences.out_of_loop(finding, finding.left_loop)
    if stories.says_where(finding) or (finding.frame is None and finding.doing is None):
        return ""
    if finding.doing is None and _says_line(finding.story, finding.frame):
        return ""
    one = len(finding.ranks) == 1
    subject = "it is" if one else "they are"
    at = f"in {terms.frame(finding.frame)}" if finding.frame is not None else ""
    if isinstance(finding.story, f.Stopped):
        return f"{subject} {at}" if at else ""
    doing = terms.doing(finding.doing) if finding.doing is not None else ""
    return " ".join(p for p in (subject, doing, at) if p)


def _says_line(story: f.Story, frame: Frame | None) -> bool:
    """Whether the head has that line already, as the one of the rank's own call."""
    if isinstance(story, f.NeverReached) and story.instead is not None:
        return True
    mine = story.mine if isinstance(story, f.Diverged | f.Disagrees) else None
    if mine is None or frame is None or not mine.site:
        return False
    if mine.called_from is not None:
        return terms.line(mine.called_from) == terms.line(frame)
    return isinstance(story, f.Diverged) and terms.site(mine.site) == terms.line(frame)


def _waiting(finding: Finding, full: bool) -> str:
    """``Ranks 0-3 have been waiting for 41 s.``; in full also where, if the head does not say it."""
    waiters = finding.waiters
    if waiters is None or isinstance(
        finding.story,
        f.InOther
        | f.Interrupted
        | f.OwesAnswer
        | f.OtherTag
        | f.OtherRoot
        | f.StepsApart
        | f.AmountApart
        | f.PeerElsewhere
        | f.UnmatchedPair,
    ):
        return ""
    if isinstance(finding.story, f.AllIn):
        return f"No progress for {terms.duration(waiters.seconds)}." if waiters.seconds >= 1 else ""
    waiting = tuple(r for r in waiters.ranks if r not in finding.ranks)
    if not waiting:
        return ""
    where = f" in {terms.op(waiters.op)}" if full and not _names(finding.story, waiters.op) else ""
    return _since(waiters, waiting, where)


def _since(waiters: f.Waiters, waiting: tuple[int, ...], where: str) -> str:
    if waiters.seconds >= 1:
        have = terms.choose(waiting, "has", "have")
        since = terms.duration(waiters.seconds)
        return f"{terms.capital(terms.ranks(waiting))} {have} been waiting{where} for {since}."
    if not where:
        return f"{terms.capital(terms.are(sorted({*waiting, *waiters.elsewhere})))} waiting."
    more = f", {terms.ranks(waiters.elsewhere)} in other operations" if waiters.elsewhere else ""
    return f"{terms.capital(terms.are(waiting))} waiting{where}{more}."


def _names(story: f.Story, op: f.Op) -> bool:
    """Whether the head says already which operation the others wait in."""
    if isinstance(
        story,
        f.NotJoined | f.NeverReached | f.NeverPosted | f.NeverStarted | f.LeftWithout | f.ShutDown,
    ):
        return story.op is not None
    if isinstance(story, f.HoldsLock | StoppedRunning):
        return story.op is not None and _same(story.op, op)
    if isinstance(story, f.Disagrees):
        return True
    return isinstance(story, f.Diverged) and story.theirs is not None and _same(story.theirs, op)


def _same(one: f.Op, other: f.Op) -> bool:
    return (one.name, one.seq, one.group, one.peer) == (
        other.name,
        other.seq,
        other.group,
        other.peer,
    )


def _doubt(finding: Finding) -> str:
    if finding.usual is None:
        return ""
    return f"Waits this long are usual in this job: {_SHORT_DOUBT[0].lower()}{_SHORT_DOUBT[1:]}"
