"""Ranks of a finished job that did not run any more, or ran for too long, in words."""

from __future__ import annotations

from ...model.log_facts import Silent
from ..findings import Finding
from ..findings.log_stories import DidNotEnd, HeartbeatStopped, StoppedRunning, WentOn
from . import clues, stories, terms
from .advice import by_story
from .differences import subject
from .terms import choose

# By signs of life that need no interpreter, which boxes of earlier probes do not have.
_DID_NOT: dict[Silent, str] = {
    "": "it did not run {} (stopped, or native code held the GIL)",
    "stopped": "no thread of it ran {} (SIGSTOP, a debugger, a frozen cgroup)",
    "gil": "it ran no Python {}, because native code held the GIL",
}
_AFTER_IT: dict[Silent, str] = {
    "": ": it did not run (SIGSTOP, a debugger), or native code held the GIL",
    "stopped": ", and no thread of it ran after that (SIGSTOP, a debugger, a frozen cgroup)",
    "gil": "; the process ran on, and one thread of it has held the GIL since then",
}


@stories.tell.register
def _(story: DidNotEnd, finding: Finding) -> str:
    were = choose(finding.ranks, "was", "were")
    how = "stopped (SIGSTOP, a debugger) or in uninterruptible I/O"
    return f"{subject(finding)} did not end at SIGTERM as the others did, and {were} killed {terms.duration(story.seconds)} later: {how}"


@stories.tell.register
def _(story: StoppedRunning, finding: Finding) -> str:
    if not story.inside:
        op = terms.op(story.op) if story.op is not None else "what the others wait in"
        before = f"for {terms.duration(story.seconds)} before the first rank ended"
        return f"{subject(finding)} never reached {op}: {_DID_NOT[story.how].format(before)}"
    before = f"{terms.duration(story.seconds)} before the first rank ended"
    inside = f" inside {terms.op(story.op)}" if story.op is not None else ""
    return f"{subject(finding)} stopped running{inside} (SIGSTOP, a debugger): the last heartbeat came {before}"


@stories.tell.register
def _(story: WentOn, finding: Finding) -> str:
    others = f"{terms.ranks(story.ended)} had ended cleanly"
    return f"{subject(finding)} went on to {terms.op(story.op)} when {others}"


@clues.say.register
def _(fact: HeartbeatStopped) -> str:
    last = f"its last heartbeat came {terms.duration(fact.seconds)} before the first rank ended"
    return f"{last}{_AFTER_IT[fact.how]}"


@by_story.register
def _(story: DidNotEnd, finding: Finding) -> str:
    where = terms.host_names(finding.nodes) or "its node"
    return f"On {where}: dmesg -T for tasks blocked for more than 120 seconds, and the file systems that it uses."


@by_story.register
def _(story: StoppedRunning, finding: Finding) -> str:
    where = terms.host_names(finding.nodes) or "its node"
    if story.how == "gil":
        return "See what the rank calls after its last operation: native code that keeps the GIL (a regular expression, an extension) stops all of its threads. hangdoctor dump shows its line while it runs."
    if not story.inside and story.how != "stopped":
        return f"See what the rank calls after its last operation: native code that keeps the GIL stops all of its threads. Was it stopped? On {where}: dmesg -T; the scheduler's log for suspended jobs."
    return f"Which signal, debugger or batch system stopped it? On {where}: dmesg -T; the scheduler's log for suspended jobs."


@by_story.register
def _(story: WentOn, finding: Finding) -> str:
    has = choose(finding.ranks, "this rank makes", "these ranks make")
    return f"See why {has} more calls than the others: a longer data set, an uneven last batch, another number of steps."
