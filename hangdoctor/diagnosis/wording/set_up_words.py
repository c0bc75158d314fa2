"""The words for the set-up of process groups, the job's own and further ones: who has not joined, who looks
for another store, who still imports.
"""

from __future__ import annotations

from .. import findings as f
from ..findings import Finding
from . import terms
from .differences import subject
from .stories import tell
from .terms import choose


@tell.register
def _(story: f.NotJoined, finding: Finding) -> str:
    verb = "reached" if finding.kind == "end_stall" else "joined"
    text = (
        f"{subject(finding)} {choose(finding.ranks, 'has', 'have')} not {verb} {terms.op(story.op)}"
    )
    return f"{text}: {story.why}" if story.why else text


@tell.register
def _(story: f.OtherStore, finding: Finding) -> str:
    looks = choose(finding.ranks, "looks", "look")
    reached = choose(story.reached, "1 rank has", f"{story.reached} ranks have")
    return f"{subject(finding)} {looks} for the store at {story.own}; {reached} reached it at {story.theirs}"


@tell.register
def _(story: f.StoreRefused, finding: Finding) -> str:
    return f"{subject(finding)} cannot reach the store at {story.where}: {story.why}"


@tell.register
def _(story: f.StillImporting, finding: Finding) -> str:
    source = f", from {story.mount} ({story.filesystem})" if story.mount else ""
    if story.computes:
        source = ", using the CPU"
    module = story.module or "a module"
    return f"{subject(finding)} {choose(finding.ranks, 'is', 'are')} still importing {module} after {terms.duration(story.seconds)}{source}"


@tell.register
def _(story: f.NoProcessThere, finding: Finding) -> str:
    has = choose(story.nodes, "has", "have")
    nodes = terms.host_names(story.nodes)
    return f"{terms.capital(terms.ranks(finding.ranks))} never started: {nodes} {has} no process of this job"


@tell.register
def _(story: f.NoneLeaves, finding: Finding) -> str:
    text = f"All ranks ({terms.ranks(finding.ranks)}) are in {terms.op(story.op)} and it does not finish"
    if story.later:
        return _later_groups(story, text)
    return (
        f"{text}: no rank is missing, so they probably cannot reach each other"
        if story.starting
        else text
    )


def _later_groups(story: f.NoneLeaves, text: str) -> str:
    """The ranks have reached one another before: they do not agree on the groups."""
    if story.sides:
        each = terms.in_operations(story.sides)
        return (
            f"All ranks wait for new groups: {each}; they do not make the same groups in one order"
        )
    return (
        f"{text}: the job is connected, so ranks may make other groups there, or in another order"
    )


@tell.register
def _(story: f.OwnGroup, finding: Finding) -> str:
    have = terms.choose(story.past, "has", "have")
    held = f"{subject(finding)} {choose(finding.ranks, 'is', 'are')} stuck in {terms.op(story.op)}, all members of that group"
    return f"{held}, and {terms.ranks(story.past)} {have} left it: the ranks make different groups there"
