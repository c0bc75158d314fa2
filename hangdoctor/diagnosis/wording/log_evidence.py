"""What job logs show beside a verdict, in words: lines of theirs, and whether they say the same."""

from __future__ import annotations

from ..findings.log_stories import LogAgrees, LogContradicts, Quote
from . import clues, terms
from .terms import choose

_SOURCES = {
    "boxes": "The black boxes",
    "dumps": "The Flight Recorder dumps",
    "both": "The log and the black boxes",
}


@clues.say.register
def _(fact: Quote) -> str:
    return f"{fact.file}:{fact.line}: {terms.cut(fact.says, 200)}"


@clues.say.register
def _(fact: LogAgrees) -> str:
    who = terms.ranks(fact.ranks)
    if fact.waiting:
        op = f" in {terms.op(fact.op)}" if fact.op is not None and fact.op.name else ""
        agree = "The log agrees" if fact.source == "log" else f"{_SOURCES[fact.source]} agree"
        return f"{agree}: {terms.ranks(fact.waiting)} timed out{op}, and {who} did not"
    is_are = choose(fact.ranks, "is", "are")
    cause = f"{who} {is_are} the cause ({fact.kind})"
    if fact.source == "log":
        return f"The log agrees: by its lines, too, {cause}"
    return f"{_SOURCES[fact.source]} agree: by them, too, {cause}"


@clues.say.register
def _(fact: LogContradicts) -> str:
    who = terms.ranks(fact.ranks)
    if fact.op is not None:
        says = (
            "The log contradicts" if fact.source == "log" else f"{_SOURCES[fact.source]} contradict"
        )
        return f"{says}: {who} timed out in {terms.op(fact.op)}"
    cause = f"{who} {choose(fact.ranks, 'is', 'are')} the cause ({fact.kind})"
    if fact.source == "log":
        return f"The log contradicts: by its lines {cause}"
    return f"{_SOURCES[fact.source]} contradict: by them {cause}"
