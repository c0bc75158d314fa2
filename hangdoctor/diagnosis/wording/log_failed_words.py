"""What job logs show of the error that came first, in words: the head of the verdict."""

from __future__ import annotations

from ..findings import Finding
from ..findings.log_stories import FailedFirst
from . import stories, terms
from .log_words import NO_RANK, by_lines, on_devices, who_of
from .terms import choose

_MESSAGE = 110  # characters of its message
_NAME = 40  # characters of a thread's name
_UNORDERED = ", and which of them was first does not show"


@stories.tell.register
def _(story: FailedFirst, finding: Finding) -> str:
    return _otherwise(story, finding) or _of_error(story, finding)


def _otherwise(story: FailedFirst, finding: Finding) -> str:
    """What is no failure of one process: a false alarm, a warning, two sides, a device; "" else."""
    what = story.meaning
    if story.living:
        return f"{_named(story, finding)} {_unheard(story, finding)}"
    if story.went_on:
        logged = f"went on after an error that it only logged: {what}"
        return f"{_who(story, finding)} {logged}. Others then waited in vain"
    if finding.ranks:
        return ""
    if finding.kind == "mismatch":
        return f"Ranks made different calls, and which of them is wrong does not show: {what}{_found_by(story)}"
    if finding.kind == "start_stall" and story.nodes:
        return f"The job did not start on {terms.host_names(story.nodes)}: {what}"
    if story.device and what:
        node = f" on {terms.host_names(finding.nodes)}" if finding.nodes else ""
        return f"{terms.capital(what)}{node}; which rank used it does not show"
    return ""


def _of_error(story: FailedFirst, finding: Finding) -> str:
    """``Rank 3 failed first: ValueError in load_batch (data.py:40): no such file``."""
    who, at = _who(story, finding), _in_frame(story, finding)
    did, but = _did(story, finding)
    what = story.meaning
    if not story.error and what:
        what = f"{but}: {what}{at}" if but else f"{at}: {what}"
        return f"{who} {did}{what}{_right_before(story)}"
    error = story.error or "an exception whose last line is missing"
    said = what or terms.both_ends(_without_stop(story.message), _MESSAGE)
    return f"{who} {did}{but}: {error}{at}{f': {said}' if said else ''}{_meanwhile(story)}"


def _without_stop(message: str) -> str:
    """The message without its full stop, since more follows; an ellipsis stays."""
    return message if message.endswith("..") else message.rstrip().removesuffix(".")


def _named(story: FailedFirst, finding: Finding) -> str:
    return _one_of(finding) if story.one_of else who_of(finding, story.someone)


def _who(story: FailedFirst, finding: Finding) -> str:
    """Whose error it is, with those that had the same."""
    who = _named(story, finding)
    if story.alike:
        who = f"All ranks ({terms.ranks(story.alike)[6:]})"
    if story.thread:
        who = _thread_of(story.thread, who)
    if story.others:
        those = _of_ranks(story, finding) if story.others_on or story.spoke else who
        on = f" on {terms.host_names(story.others_on)}" if story.others_on else ""
        who = f"{those} and {story.others} more{on}"
    return who


def _in_frame(story: FailedFirst, finding: Finding) -> str:
    """`` in load_batch (data.py:40)``; its own words say more than the name of a library's function."""
    frame = finding.frame
    if frame is None or (story.said is not None and not frame.line):
        return ""
    return f" in {terms.frame(frame)}"


def _unheard(story: FailedFirst, finding: Finding) -> str:
    """The ranks that were reported lost, and those of them that were not."""
    said = f"{choose(finding.ranks, 'was', 'were')} said to be lost"
    why = story.meaning.partition(": ")[0]
    at = f" ({story.lives_by.file}:{story.lives_by.line})" if story.lives_by is not None else ""
    logs = choose(story.living, "own log goes", "own logs go")
    if set(story.living) == set(finding.ranks):
        its = choose(story.living, "its", "their")
        return f"{said} ({why}), but {its} {logs} on after that{at}: mostly a false alarm"
    so = choose(story.living, "so was", "so were")
    return f"{said} ({why}); {so} {terms.ranks(story.living)}, whose {logs} on after that{at}: it may be a false alarm"


def _one_of(finding: Finding) -> str:
    """``Rank 2 or 3 (n1; the log does not show which)``."""
    ranks = finding.ranks
    who = f"Rank {ranks[0]} or {ranks[1]}" if len(ranks) == 2 else f"One of {terms.ranks(ranks)}"
    at = f" on {terms.host_names(finding.nodes)}" if finding.nodes else ""
    return f"{who}{at} {NO_RANK}"


def _of_ranks(story: FailedFirst, finding: Finding) -> str:
    """The ranks with their own nodes, where others had it elsewhere."""
    own = [node for node in finding.nodes if node not in story.others_on]
    if story.spoke:
        return terms.who(story.spoke, [], own)
    return terms.who(finding.ranks, finding.homes, own or finding.nodes)


def _right_before(story: FailedFirst) -> str:
    """``, right after it had printed '...' (job.log:31)``; "" where it had not."""
    if story.meanwhile is not None:
        return _meanwhile(story)
    if story.said is None:
        return ""
    says = f"'{terms.cut(story.said.says, _MESSAGE)}' ({story.said.file}:{story.said.line})"
    return (
        f", and it had printed {says}" if story.reported else f", right after it had printed {says}"
    )


def _meanwhile(story: FailedFirst) -> str:
    if story.meanwhile is None:
        return ""
    says = f"'{terms.cut(' '.join(story.meanwhile.says.split()), 50)}'"
    at = f"{story.meanwhile.file}:{story.meanwhile.line}"
    return f"; in the same second {story.meanwhile_by} printed {says} ({at}): which of the two was first does not show"


def _did(story: FailedFirst, finding: Finding) -> tuple[str, str]:
    """``failed first``, or what else its error came to; and what the logs do not show of that."""
    someone = story.someone
    if someone.processes and not finding.ranks:
        process = f"{someone.pid}{on_devices(someone)}"
        return f"failed alike ({process} is printed first)", ", and which was first does not show"
    if story.others:
        return "failed alike", _UNORDERED
    if story.thread:
        return "ended by an exception", ""
    if story.alike:
        return "failed alike, at one moment", ""
    if story.child_before is not None:
        at = f"{story.child_before.file}:{story.child_before.line}"
        seen = f"its parent had seen another one fail before ({at})"
        return "failed", f", but {seen}, whose words the log lacks"
    if story.meanwhile is not None:
        return "failed", ""
    if story.later:
        return f"failed by {choose(finding.ranks or 1, 'itself', 'themselves')}, too", ""
    if story.together:
        return "failed alike", _UNORDERED
    if finding.kind == "unreachable":
        return f"{choose(finding.ranks or 1, 'was', 'were')} lost first", ""
    return "failed first", ""


def _found_by(story: FailedFirst) -> str:
    """``, as rank 8 on n1 found``: a mismatch has two sides, and one of them says so."""
    at = f" on {terms.host_names(list(story.nodes))}" if story.nodes else ""
    who = terms.ranks(story.by)
    if not who and story.someone.pid:
        who = f"process {story.someone.pid}"
    if not who and story.someone.beside:
        who = f"a process {by_lines(story.someone.beside)}"
    if not who and not at:
        return ""
    return f", as {who or 'a process'}{at} found"


def _thread_of(name: str, who: str) -> str:
    """``Thread 'writer' of a rank (the log does not show which)``."""
    return f"Thread '{terms.cut(name, _NAME)}' of {who[:1].lower()}{who[1:]}"
