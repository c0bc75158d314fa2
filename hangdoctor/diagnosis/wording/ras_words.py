"""The words for what NCCL's RAS reports of communicators and their processes."""

from __future__ import annotations

from collections.abc import Sequence

from .. import findings as f
from ..findings import Finding
from . import terms
from .stories import tell
from .terms import choose


def _member(finding: Finding, members: f.OwnNumbers | None) -> str:
    """The job's ranks, else members of a communicator with their processes."""
    if members is None:
        return terms.ranks(finding.ranks)
    of = f"{terms.ranks(members.ranks)} of communicator {members.communicator} (its own numbering"
    return f"{of}; {_processes(members.processes)})" if members.processes else f"{of})"


@tell.register
def _(story: f.LostByRas, finding: Finding) -> str:
    if story.dead:
        return f"NCCL RAS considers {lost(finding)} dead: the communicator cannot go on without it"
    return f"NCCL RAS gets no data from {lost(finding)}"


def lost(finding: Finding) -> str:
    """The ranks or processes that RAS has lost, in a sentence."""
    story = finding.story
    if isinstance(story, f.LostProcesses):
        return _processes(story.processes)
    if not isinstance(story, f.LostByRas):
        return terms.ranks(finding.ranks)
    told = story.members is not None and story.members.processes
    where = f" on {', '.join(story.hosts)}" if story.hosts and not told else ""
    return f"{_member(finding, story.members)}{where}"


@tell.register
def _(story: f.ErrorByRas, finding: Finding) -> str:
    told = story.members is not None and story.members.processes
    where = f" on {terms.host_names(finding.nodes)}" if finding.nodes and not told else ""
    who = terms.capital(_member(finding, story.members))
    return f"{who}{where} failed first: {says_ras(story)} (NCCL RAS)"


@tell.register
def _(story: f.LostProcesses, finding: Finding) -> str:
    return terms.capital(says_ras(story))


@tell.register
def _(story: f.FewerByRas, finding: Finding) -> str:
    who = terms.capital(_member(finding, story.members))
    if story.ahead:
        return f"{who} {says_ras(story)} (NCCL RAS): one of the two sides made other calls"
    return f"{who} {says_ras(story)} (NCCL RAS): {choose(_numbers(finding, story.members), 'it has', 'they have')} not reached the next one"


def _numbers(finding: Finding, members: f.OwnNumbers | None) -> Sequence[int]:
    return finding.ranks if members is None else members.ranks


def says_ras(story: f.LostByRas | f.LostProcesses | f.FewerByRas | f.ErrorByRas) -> str:
    """What NCCL RAS reported, without the ranks."""
    if isinstance(story, f.LostByRas):
        where = f" on {', '.join(story.hosts)}" if story.hosts else ""
        of = f" of communicator {story.members.communicator}" if story.members else ""
        verb = "considers dead" if story.dead else "gets no data from"
        return f"NCCL RAS {verb} the process{where}{of}"
    if isinstance(story, f.LostProcesses):
        verb = "has given up on" if story.dead else "gets no answer from"
        return f"NCCL RAS {verb} {_processes(story.processes)}"
    if isinstance(story, f.ErrorByRas):
        return f"NCCL reports {_error(story.error)}"
    launched = f"launched {story.launched} {story.op or 'operations'}"
    if not story.ahead:
        return f"{launched}, fewer than the others"
    ahead = f"{terms.ranks(story.ahead)} {choose(story.ahead, 'is', 'are')} ahead"
    return f"{launched}; {ahead} with {story.ahead_at}"


_NUMBERED = {
    "1": "unhandled cuda error",
    "2": "unhandled system error",
    "3": "internal error",
    "4": "invalid argument",
    "5": "invalid usage",
}


def _error(text: str) -> str:
    """NCCL's error; of a number, as JSON has it, what it means."""
    meaning = _NUMBERED.get(text.rpartition("_error ")[2], "")
    return f"{text} ({meaning})" if meaning else text


_SHOWN = 3  # processes that a sentence names


def _processes(processes: Sequence[tuple[str, int, str]]) -> str:
    named = [
        f"process {pid}" + (f" (GPU {gpu})" if gpu else "") + (f" on {host}" if host else "")
        for host, pid, gpu in processes[:_SHOWN]
    ]
    more = len(processes) - _SHOWN
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")
