"""Failures that a log has in words that no rule knows: the head of the verdict, and what to do."""

from __future__ import annotations

from ...text.ranges import format_ranks
from ..findings import Finding
from ..findings.log_stories import FailedInWords
from . import stories, terms
from .advice import by_story
from .log_words import NO_RANK, WORDS, who_of


@stories.tell.register
def _(story: FailedInWords, finding: Finding) -> str:
    says = f"in words that are not known here: '{terms.cut(story.says, WORDS)}' ({story.at})"
    if story.launcher and not finding.ranks:
        return f"A launcher saw a process fail, and which one does not show: {says}"
    who = who_of(finding, story.someone)
    if who.endswith(NO_RANK):
        who = who.replace("A rank", "A process").replace(NO_RANK, "(its line names none)")
    several = len(finding.ranks) > 1 or len(story.someone.tasks) > 1 or story.someone.processes
    if several:
        return f"{who} printed a failure alike, and which was first does not show, {says}"
    who += _process(story) if finding.ranks else ""
    later = ", as a line below it shows" if story.named_later else ""
    return f"{who} was the first to print a failure{later}, {says}"


def _process(story: FailedInWords) -> str:
    """``, process 812 (device 3),``; "" where the line has neither."""
    someone = story.someone
    process = f"process {someone.pid}" if someone.pid else ""
    device = terms.choose(someone.devices, "device", "devices") if someone.devices else ""
    device = f"{device} {format_ranks(someone.devices)}" if device else ""
    if process and device:
        return f", {process} ({device}),"
    return f", {process or device}," if process or device else ""


@by_story.register
def _(story: FailedInWords, finding: Finding) -> str:
    return "Read that line and those around it in the log; what its program or library means by it, its own documentation says."
