"""Where logs show that a process was, in words: at a question, or elsewhere than all others."""

from __future__ import annotations

from ..findings import Finding
from ..findings.log_places import AloneInStacks, ApartInTable, AsksInput, OtherWords
from . import stories, terms
from .advice import by_story
from .release import open_at

_QUESTION = 70  # characters


@stories.tell.register
def _(story: AsksInput, finding: Finding) -> str:
    who = terms.who(finding.ranks, finding.homes, finding.nodes) if finding.ranks else _SOMEONE
    if story.debugger:
        return f"{who} is stopped in a debugger: the prompt '{story.question}' ({story.at}) is the last output"
    asked = terms.tail(story.question, _QUESTION)
    return f"{who} is waiting for an answer on standard input: '{asked}' ({story.at}) is the last output"


_SOMEONE = "A rank (the log does not show which)"


@stories.tell.register
def _(story: AloneInStacks, finding: Finding) -> str:
    where = terms.frame(finding.frame) if finding.frame is not None else "another place"
    rest = story.processes - story.few
    is_are = "is" if story.few == 1 else "are"
    who = "One" if story.few == 1 else str(story.few)
    others = f"the other {rest} wait in {terms.op(story.op)}"
    return f"{who} of {story.processes} processes (their stacks do not show the rank) {is_are} in {where}: {others}"


@stories.tell.register
def _(story: ApartInTable, finding: Finding) -> str:
    who = terms.who(finding.ranks, finding.homes, finding.nodes)
    here = terms.frame(finding.frame) if finding.frame is not None else "another place"
    is_are = terms.choose(finding.ranks, "is", "are")
    others, stand = terms.ranks(story.others), terms.choose(story.others, "stands", "stand")
    return (
        f"{who} {is_are} in {here}, and {others} {stand} in {terms.frame(story.there)}, which they called from "
        f"line {story.called.line} of that function: where those wait for all ranks, it took another way"
    )


@stories.tell.register
def _(story: OtherWords, finding: Finding) -> str:
    who = terms.who(finding.ranks, finding.homes, finding.nodes)
    at = f" in {terms.frame(finding.frame)}" if finding.frame is not None else ""
    others = terms.ranks(story.others)
    return f"{who} waited for '{story.mine}'{at} until it gave up, where {others} waited for '{story.theirs}'"


@by_story.register
def _(story: ApartInTable, finding: Finding) -> str:
    return f"See what leads to line {story.called.line} of that function on some ranks and past it on others: a branch on the rank, on data, or on a count of its own."


@by_story.register
def _(story: OtherWords, finding: Finding) -> str:
    return f"See how that rank came to '{story.mine}': a seed, a file, a setting or a count that is another one on it."


@by_story.register
def _(story: AsksInput, finding: Finding) -> str:
    if story.debugger:
        return "Remove the breakpoint, or run it on one rank with a terminal."
    return "Answer it beforehand (an option such as --yes or --overwrite), or start with < /dev/null: then it fails at once instead of waiting."


@by_story.register
def _(story: AloneInStacks, finding: Finding) -> str:
    look = ""
    if finding.frame is not None and (place := open_at(finding.frame)):
        look = f"See what {terms.frame(finding.frame)} waits for: {place}. "
    return f"{look}To see the rank next time, print it before the stacks, or use hangdoctor dump while it hangs."
