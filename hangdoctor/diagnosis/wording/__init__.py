"""Findings into words: the last step of a diagnosis. What is said here is never read again.

`docs/voice.md` has the words and the pattern: who, what it did or did not do, where it is; who has
been waiting since when.
"""

from __future__ import annotations

from ...model.diagnosis import Cause
from .. import findings as f
from ..findings import Finding
from . import advice_on_operations as advice_on_operations
from . import lock_words as lock_words
from . import log_words as log_words
from . import stories, terms
from .advice import advice
from .clues import evidence
from .reasons import alternative

LONGEST = 200  # characters of a sentence


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
    head, doubt = stories.head(finding), _doubt(finding)
    place, held = _place(finding), _held(finding)
    long, short = _waiting(finding, full=True), _waiting(finding, full=False)
    choices = [
        (place, held, long),
        (place, held, short),
        ("", held or place, short),
        (held or place, "", ""),
    ]
    for first, second, waiting in choices:
        clauses = "; ".join(p for p in (head, first, second) if p) + "."
        text = " ".join(p for p in (clauses, waiting, doubt) if p)
        if len(text) <= LONGEST:
            return text
    room = LONGEST - len(doubt) - 2
    return f"{terms.cut(head, room)}. {doubt}".rstrip()


def _place(finding: Finding) -> str:
    """``it is sleeping in load_batch (data.py:40)``; "" where the head says it, or nothing is
    known.
    """
    if stories.says_where(finding) or (finding.frame is None and finding.doing is None):
        return ""
    one = len(finding.ranks) == 1
    subject = "it is" if one else "they are"
    at = f"in {terms.frame(finding.frame)}" if finding.frame is not None else ""
    if isinstance(finding.story, f.Stopped):
        return f"{subject} {at}" if at else ""
    doing = terms.doing(finding.doing) if finding.doing is not None else ""
    return " ".join(p for p in (subject, doing, at) if p)


def _held(finding: Finding) -> str:
    holding = finding.holding
    if isinstance(holding, f.Debugger):
        return f"{holding.tool} waits for a command there"
    if isinstance(holding, f.TypedInput):
        return "it waits for typed input"
    if isinstance(holding, f.ChildEnded):
        return f"its child {holding.pid} is dead ({terms.end(holding.end)})"
    if isinstance(holding, f.ChildStopped):
        by = f" by process {holding.tracer}" if holding.tracer else ""
        return f"its child {holding.pid} is stopped{by}"
    if isinstance(holding, f.AtWorker):
        return f"its worker {holding.pid} is in {terms.frame(holding.frame)}"
    if isinstance(holding, f.OnQueue):
        return f"it waits to {'put into a full' if holding.full else 'take from an empty'} queue"
    if isinstance(holding, f.OnChild):
        at = f", which is in {terms.frame(holding.frame)}" if holding.frame is not None else ""
        blocked = f", which is blocked in {holding.call}" if holding.call and not at else ""
        if holding.unread:
            at, blocked = ", which is blocked writing into a pipe", ""
        command = terms.command(holding.command)
        return f"it waits for its child {holding.pid} ({command}){at}{blocked}"
    return ""


def _waiting(finding: Finding, full: bool) -> str:
    """``Ranks 0-3 have been waiting for 41 s.``; in full also where, if the head does not say it."""
    waiters = finding.waiters
    if waiters is None or isinstance(finding.story, f.InOther | f.PeerElsewhere):
        return ""
    if set(waiters.ranks) <= set(finding.ranks) and not isinstance(finding.story, f.AllIn):
        return ""
    if isinstance(finding.story, f.AllIn):
        return f"No progress for {terms.duration(waiters.seconds)}." if waiters.seconds >= 1 else ""
    waiting = tuple(r for r in waiters.ranks if r not in finding.ranks)
    where = "" if not full or _names(finding.story, waiters.op) else f" in {terms.op(waiters.op)}"
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
        story, f.NotJoined | f.NeverReached | f.NeverPosted | f.NeverStarted | f.LeftWithout
    ):
        return story.op is not None
    if isinstance(story, f.HoldsLock):
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
    return "Waits this long are usual in this job: it may only be slow."
