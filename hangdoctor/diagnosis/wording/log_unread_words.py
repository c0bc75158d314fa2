"""What a log has in words that no rule knows, in tables of one value a rank, and in the program's own words
on a rank: the head of the verdict, and what to do.
"""

from __future__ import annotations

import re

from ...text.late import late
from ...text.ranges import format_ranks
from ..findings import Finding
from ..findings.log_stories import FailedInWords, GaveUpOn, NamedByProgram, TableTells
from . import stories, terms
from .advice import by_story
from .log_words import NO_RANK, WORDS, who_of

_SENTENCE = 80  # of its own words
_SHORTEST = 40
_FOLDERS = late(r"(?<![\w.:/-])/(?:[\w.+-]{1,80}/){4,30}(?=[\w.+-]{1,80}:\d)")
# The place in the source of the library that printed it, before its words
_SOURCE = late(
    r"^(?:…?/)?(?:[\w.+-]{1,80}/){0,30}[\w.+-]{1,80}\.(?:c|cc|cpp|cxx|cu|h|hh|hpp|f90|F90|py|rs|go)\W{1,3}\d{1,6}(?:\(\w{1,80}\))?:\s"
)
_OF_PROCESS = late(
    r"\b(?:tasks?|ranks?|process(?:es)?|procs?|pids?|workers?|child(?:ren)?|apps?|programs?|exit(?:ed|s)?|killed|aborted|died|crashed|terminated)\b",
    re.I,
)
_OF_STACK = "the end of the stack of"


@stories.tell.register
def _(story: FailedInWords, finding: Finding) -> str:
    known = "not known" if _OF_STACK in story.at else "that are not known"  # room for its call
    words = terms.words_of(_short(story.says), _room(story, finding))
    says = f"in words {known} here: '{words}' ({story.at})"
    if story.launcher and not finding.ranks:
        if _OF_PROCESS.search(story.says) is None:
            return f"A launcher printed a failure, and whose it is does not show, {says}"
        return f"A launcher saw a process fail, and which one does not show: {says}"
    who = who_of(finding, story.someone)
    if who.endswith(NO_RANK):
        who = who.replace("A rank", "A process").replace(NO_RANK, "(its line names none)")
    if story.someone.beside:
        who = who.replace("A rank", "A process")
    several = len(finding.ranks) > 1 or len(story.someone.tasks) > 1 or story.someone.processes
    if several:
        return f"{who} printed a failure alike, and which was first does not show, {says}"
    who += _process(story) if finding.ranks else ""
    later = ", as a line below it shows" if story.named_later else ""
    lost = f", before others lost host {story.lost}" if story.lost else ""
    return f"{who} was the first to print a failure{later}{lost}, {says}"


def _short(says: str) -> str:
    """The line with the folders of its source file left out, which would push out what it says; without the
    whole place where that is still too long.
    """
    shorter = _FOLDERS.sub("…/", says)
    return _SOURCE.sub("", says) if len(shorter) > WORDS else shorter


def _room(story: FailedInWords, finding: Finding) -> int:
    """Characters of the line that leave the sentence whole, whose beginning may name a long host."""
    if not (finding.nodes or story.lost) or _OF_STACK in story.at:
        return WORDS
    taken = len(who_of(finding, story.someone)) + len(story.at) + len(story.lost) + _SENTENCE
    return max(_SHORTEST, min(WORDS, terms.LONGEST - taken))


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


@stories.tell.register
def _(story: TableTells, finding: Finding) -> str:
    title = terms.cut(story.where.says, WORDS).rstrip(": ")
    table = f"in the table '{title}' ({story.where.file}:{story.where.line})"
    raised = f", and a check of it raised {story.error}" if story.error else ""
    every = terms.capital(terms.ranks(story.ranks))
    if story.how == "no number":
        return f"{every} all have a value that is no number (nan, inf) {table}{raised}; none of them is apart"
    if story.how == "all other":
        return f"{every} do not have one value {table}{raised}; no rank is apart from the rest"
    if story.how == "some no number":
        return f"Several of {terms.ranks(story.ranks)} have a value that is no number (nan, inf) {table}{raised}; which was first does not show"
    have = terms.choose(finding.ranks, "has", "have")
    what = "a value that is no number (nan, inf)"
    if story.how == "one other":
        what = "another value than all others"
    return f"{who_of(finding)} alone {have} {what} {table}{raised}"


@by_story.register
def _(story: TableTells, finding: Finding) -> str:
    if story.how == "all other":
        return "What should be equal on all ranks is not: is it synchronised at all, with the same program, data order and seed on each?"
    if story.how == "one other":
        return "Compare that rank's input, seed and device with those of the others."
    return "Look at the last losses and gradient norms before it: a NaN of one rank is on all after the next all_reduce."


@stories.tell.register
def _(story: NamedByProgram, finding: Finding) -> str:
    says = f"'{terms.cut(story.where.says, WORDS)}' ({story.where.file}:{story.where.line})"
    return f"{who_of(finding)} {terms.choose(finding.ranks, 'is', 'are')} the one to look at by the program's own word, {says}, and ranks then waited in vain"


@by_story.register
def _(story: NamedByProgram, finding: Finding) -> str:
    return "Read what the program prints of it before and after that line, and why it prints that. hangdoctor dump while the job waits shows the place of each rank."


@stories.tell.register
def _(story: GaveUpOn, finding: Finding) -> str:
    says = f"'{terms.both_ends(story.where.says, WORDS)}' ({story.where.file}:{story.where.line})"
    have = terms.choose(finding.ranks, "has", "have")
    return f"{who_of(finding)} {have} not sent what rank {story.by} waited for until it gave up: {says}"


@by_story.register
def _(story: GaveUpOn, finding: Finding) -> str:
    who = terms.ranks(finding.ranks)
    return f"See what {who} did then: it sent nothing, or sent it otherwise (another tag, another partner). Next time start the job with: hangdoctor run -- CMD."
