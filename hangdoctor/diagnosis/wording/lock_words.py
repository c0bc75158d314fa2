"""What is said of file locks, and what to do about them."""

from __future__ import annotations

import shlex

from .. import findings as f
from ..findings import Finding
from . import terms
from .advice import by_story, elsewhere
from .differences import subject
from .release import on_node
from .stories import tell


def _name(path: str) -> str:
    return path.rpartition("/")[2] or path or "a file"


@tell.register
def _(story: f.HoldsLock, finding: Finding) -> str:
    wait = terms.choose(story.waiters, "waits", "wait")
    lock = f"the lock on {_name(story.path)} that {terms.ranks(story.waiters)} {wait} for"
    if story.child:
        return f"{subject(finding)} started process {story.child}, which holds {lock}"
    inside = f", and has entered {terms.op(story.op)}" if story.op is not None else ""
    return f"{subject(finding)} holds {lock}{inside}"


@tell.register
def _(story: f.LockedBy, finding: Finding) -> str:
    wait = terms.choose(finding.ranks, "waits", "wait")
    command = f" ({terms.command(story.command)})" if story.command else ""
    at = f" in {terms.frame(finding.frame)}" if finding.frame is not None else ""
    who = f"{terms.ranks(finding.ranks)} {wait} for{at}"
    return f"Process {story.pid}{command} holds the lock on {_name(story.path)} that {who}"


@tell.register
def _(story: f.LockRing, finding: Finding) -> str:
    files = ", ".join(_name(path) for path in story.paths)
    return f"{subject(finding)} wait for each other's file locks: {files}"


@tell.register
def _(story: f.LeftLock, finding: Finding) -> str:
    path = "/".join(story.path.rsplit("/", 2)[-2:])
    return (
        f"All ranks wait for the lock file {path} in {terms.frame(story.frame)}, which no process of "
        "the job holds; a build that was killed may have left it"
    )


@by_story.register
def _(story: f.LeftLock, finding: Finding) -> str:
    path = shlex.quote(story.path)
    return f"If no build runs, remove it{on_node(finding)}: rm {path}. The ranks then go on."


@by_story.register
def _(story: f.HoldsLock, finding: Finding) -> str:
    path = shlex.quote(story.path) if story.path else "the file"
    if story.child:
        return f"See why process {story.child}{on_node(finding)} keeps the lock on {path}."
    if finding.kind == "order":
        call = terms.op(story.op) if story.op is not None else "the call"
        ranks = terms.ranks(story.waiters)
        return f"Release the lock before {call}: {ranks} cannot come to it without {path}."
    home = finding.homes[0] if len(finding.homes) == 1 else None
    return elsewhere(finding, home) or f"See why it keeps the lock on {path}."


@by_story.register
def _(story: f.LockedBy, finding: Finding) -> str:
    here = on_node(finding)
    if not story.command:  # it is hidden from this user, or gone and its child has the file open
        see = f"ps -fp {story.pid}"
        if story.path:
            see = f"timeout 5 fuser -v {shlex.quote(story.path)}"
        return f"Process {story.pid} or one that it started keeps the lock. Find it{here}: {see}."
    see = f"ps -o pid,ppid,user,stat,etime,args -p {story.pid}"
    why = f"See why process {story.pid} keeps the lock on {story.path}{here}: {see}"
    return f"{why}. The lock ends with that process."


@by_story.register
def _(story: f.LockRing, finding: Finding) -> str:
    return "Take these locks in the same order on every rank, or only one of them at a time."
