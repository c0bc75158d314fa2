"""Where logs show that a process was, in words: at a question, or elsewhere than all others."""

from __future__ import annotations

from ..findings import Finding
from ..findings.log_places import (
    AloneInStacks,
    ApartInTable,
    AsksInput,
    OtherWords,
    PrintedOtherwise,
    SeenInList,
    TookOther,
)
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
    others = terms.ranks(story.others)
    there = f"{terms.frame(story.there)}, called from line {story.called.line}"
    return f"{who} {is_are} in {here}, and {others} in {there} of {story.called.name}: a call that waits for all ranks, it seems"


_PIDS = 8  # of a list


def _pids(pids: tuple[int, ...]) -> str:
    """``process 812``, ``processes 812, 814 and 6 more``."""
    shown = ", ".join(map(str, pids[:_PIDS]))
    more = f" and {len(pids) - _PIDS} more" if len(pids) > _PIDS else ""
    return f"{terms.choose(pids, 'process', 'processes')} {shown}{more}"


_IN_STATE = {
    "Z": ("has ended and is defunct", "have ended and are defunct"),
    "T": ("is stopped (T)", "are stopped (T)"),
    "D": ("is asleep in a system call (D)", "are asleep in a system call (D)"),
}


@stories.tell.register
def _(story: SeenInList, finding: Finding) -> str:
    who = terms.capital(_pids(story.pids))
    state = terms.choose(story.pids, *_IN_STATE[story.state])
    rest = "and no other of that name is in the list"
    if story.others:
        rest = f"and {_pids(story.others)} of the same name {terms.choose(story.others, 'is', 'are')} not"
    return f"{who} ({story.name}) {state}, {rest}; the list does not show their ranks"


@stories.tell.register
def _(story: OtherWords, finding: Finding) -> str:
    who = terms.who(finding.ranks, finding.homes, finding.nodes)
    at = f" in {terms.frame(finding.frame)}" if finding.frame is not None else ""
    others = terms.ranks(story.others)
    return f"{who} waited for '{story.mine}'{at} until it gave up, where {others} waited for '{story.theirs}'"


@stories.tell.register
def _(story: TookOther, finding: Finding) -> str:
    who = terms.who(finding.ranks, finding.homes, finding.nodes)
    others, theirs = terms.ranks(story.others), terms.op(story.theirs)
    return f"{who} most likely made another call than the others: gloo brought it more data than its call takes, while {others} {terms.choose(story.others, 'was', 'were')} in {theirs}"


_LINE = 70  # characters


@stories.tell.register
def _(story: PrintedOtherwise, finding: Finding) -> str:
    who = terms.who(finding.ranks, finding.homes, finding.nodes)
    mine, usual = terms.cut(story.mine, _LINE), terms.cut(story.usual, _LINE)
    if story.lead == "all":
        return f"{who} all gave up, as each printed last: '{mine}' ({story.at})"
    if story.lead == "left out":
        return f"{who} alone said that it left something out: '{mine}' ({story.at}): most likely a call, too"
    if story.lead == "value":
        return f"{who} alone printed '{mine}' ({story.at}), all others '{usual}'"
    if story.lead == "not finite":
        return f"{who} alone printed a number that is not finite, '{mine}' ({story.at}), and the guards against NaN stopped for it"
    if story.lead == "leaves":
        return f"{who} ended first, by what it printed last: '{mine}' ({story.at}); the others then lost their connections"
    return f"{who} was elsewhere, by what it printed last: '{mine}' ({story.at}); all others: '{usual}'"


@by_story.register
def _(story: PrintedOtherwise, finding: Finding) -> str:
    if story.lead == "all":
        return "It is a check of the program's own: the lines above it say what it found, and whose part was the first."
    if story.lead == "not finite":
        return "Look at that rank's input of that step first, then at its loss and gradients: what is reduced over all ranks is bad on all of them."
    return "See what that rank called behind that line, and the others not: hangdoctor dump while it hangs, or hangdoctor run, shows the call."


@by_story.register
def _(story: ApartInTable, finding: Finding) -> str:
    return f"See why {story.called.name} came to line {story.called.line} on some ranks and not on all: a branch on the rank, on data, or on a count of its own."


_NEXT = {
    "Z": "Their own last lines, their exit codes and dmesg -T | grep -i oom say why they ended, and in which order; those that are left wait for them in vain.",
    "T": "See who stopped them: a debugger, kill -STOP, or Ctrl-Z. kill -CONT lets them go on.",
    "D": "Look a second time: if it is still there, cat /proc/PID/stack and the file system or driver in it are next.",
}


@by_story.register
def _(story: SeenInList, finding: Finding) -> str:
    return _NEXT[story.state]


@by_story.register
def _(story: TookOther, finding: Finding) -> str:
    return "See how that rank can leave out a call that the others make: a branch on its data, a count of its own, a caught error. Started with hangdoctor run -- CMD, the next one shows who called what."


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
