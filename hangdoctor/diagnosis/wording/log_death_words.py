"""How a process ended, as job logs and boxes tell it: the head of the verdict."""

from __future__ import annotations

from ..findings import Finding
from ..findings.log_stories import LoggedDeath
from . import stories, terms
from .log_words import WORDS, who_of
from .terms import choose

_UNSAID = ", and no line that is known here says why"
_OWN_WORDS = 90  # characters of a line beside how its process ended
_NO_ERROR = "no error of its own is in the log"


@stories.tell.register
def _(story: LoggedDeath, finding: Finding) -> str:
    head = f"{who_of(finding, story.someone)} {_ended(story, finding)}"
    if story.after is not None:
        at = f"{story.after.says} ({story.after.file}:{story.after.line})"
        if finding.kind == "error":
            who, it = who_of(finding, story.someone), _it(finding)
            return f"{who} failed first: {at}, and then {it} {_then(story)}"
        return f"{head}, after it had printed that {at}"
    if story.said is None:
        return head
    says = f"'{terms.cut(story.said.says, WORDS)}' ({story.said.file}:{story.said.line})"
    if story.alike:
        return _failed_alike(story, finding)
    if finding.kind == "error":
        who, it = who_of(finding, story.someone), _it(finding)
        text = terms.both_ends(story.said.says, _OWN_WORDS)
        printed = f"{it} printed '{text}' ({story.said.file}:{story.said.line})"
        return f"{who} failed first: {printed}, in words that are not known here, and then {it} {_then(story)}"
    if story.above:
        often = f" {story.times} times" if story.times > 1 else ""
        return f"{head}; right above that the log has{often} {says}, which may be its reason"
    return f"{head}; before that it printed, in words that are not known here, {says}"


def _failed_alike(story: LoggedDeath, finding: Finding) -> str:
    """Of many that printed one line, in which no process is named."""
    assert story.said is not None
    who = who_of(finding, story.someone)
    if story.others:
        who = f"{who} and {story.others} more"
    says = terms.both_ends(story.said.says, _OWN_WORDS)
    lines = f"{story.alike} lines say '{says}' ({story.said.file}:{story.said.line})"
    return f"{who} failed alike, which was first does not show: {lines}, and they {_then(story)}"


def _it(finding: Finding) -> str:
    return choose(finding.ranks or 1, "it", "they")


def _then(story: LoggedDeath) -> str:
    """How it ended itself after its own words."""
    if story.aborted:
        return f"called MPI_Abort (exit code {story.end.code})"
    saw = f", as {story.by} saw it" if story.by else ""
    return f"ended with exit code {story.end.code}{saw}"


def _ended(story: LoggedDeath, finding: Finding) -> str:
    """What its process did; that nothing says why only where it printed nothing."""
    code, silent = story.end.code, story.said is None and story.after is None
    unsaid = _UNSAID if silent else ""
    if story.cut:
        return _cut_end(story, finding)
    if story.memory:
        return "died first: killed for lack of memory"
    if story.left:
        return f"ended first, {_left(code, finding)}"
    if story.aborted:
        return _aborted(story, finding, code)
    if code == 0:
        return "ended first, with exit code 0, while the others went on"
    if story.by:
        saw = f"failed first, as {story.by} saw it: {terms.end(story.end)}"
        return f"{saw}{unsaid}{_which_first(finding)}"
    if story.alone:
        how = "aborted (SIGABRT)" if code == -6 else f"ended with exit code {code}"
        return f"failed first, as far as the log shows: it {how} while others still ran{unsaid}"
    if code is not None and code > 0:
        return f"ended first, with exit code {code}{f'; {_NO_ERROR}' if silent else ''}"
    if len(finding.ranks) > 1 and code != -6:
        which = _which_first(finding) if silent else ""
        return f"died alike{_at(finding)}: {terms.end(story.end)}{which}"
    return f"died first{_at(finding)}: {terms.end(story.end)}{_which_first(finding)}"


def _at(finding: Finding) -> str:
    return f" in {terms.frame(finding.frame)}" if finding.frame is not None else ""


def _aborted(story: LoggedDeath, finding: Finding, code: int | None) -> str:
    """That it called MPI_Abort, and whether the log has its reason."""
    it = choose(finding.ranks or 1, "it", "they")
    silent = story.said is None and story.after is None
    several = bool(story.others) or len(finding.ranks) > 1
    error = f", and {_NO_ERROR}" if silent else ""
    if several:
        error = error.replace("its own", "their own")
    if story.others:
        called = f"and {story.others} more called MPI_Abort (exit code {code})"
        return f"{called}, which ends the job; which was first does not show{error}"
    if several:
        error = f"; which of them was first does not show{error}"
    return f"ended the job{_at(finding)}: {it} called MPI_Abort (exit code {code}){error}"


def _which_first(finding: Finding) -> str:
    return "; which of them was first does not show" if len(finding.ranks) > 1 else ""


def _cut_end(story: LoggedDeath, finding: Finding) -> str:
    """Of several that ended at one moment, where the log lacks how some of them did."""
    known = [rank for rank in finding.ranks if rank not in story.cut]
    cut = terms.ranks(story.cut)
    return (
        f"failed at one moment: {terms.ranks(known)} {terms.end(story.end)}; "
        f"the row of {cut} in torchelastic's table is cut before its exit code"
    )


def _left(code: int | None, finding: Finding) -> str:
    """How a program ended by itself."""
    if code is not None and code > 0:
        return f"with exit code {code}: sys.exit({code}), and no exception"
    who = choose(finding.ranks or 1, "it", "they")
    aborted = f", then aborted at exit ({terms.signal_name(-code)})" if code else ""
    by = "sys.exit" if code else "sys.exit(0)"  # an abort hides the code
    left = f"left with {by}, or at the end of its program"
    return f"while the others went on: {who} {left}{aborted}"
