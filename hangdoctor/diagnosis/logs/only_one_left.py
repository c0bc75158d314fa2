"""Whose an error is that the log gives no rank, where all ranks but one waited to the limit."""

from __future__ import annotations

from msgspec import structs

from ...model.log_facts import PythonError
from ..confidence import Ground, sure
from ..findings.log_stories import DidNotTimeOut, FailedFirst, Someone
from .candidate import First
from .scene import Scene


def of_the_only_one(scene: Scene, error: First, named: First) -> First | None:
    """The error as that of the one rank that did not wait: who waits to the limit has raised nothing
    before. None where another may have printed it.
    """
    story, missing = error.finding.story, named.finding
    if not isinstance(story, FailedFirst) or story.went_on or story.thread:
        return None
    if not isinstance(missing.story, DidNotTimeOut) or len(missing.ranks) != 1:
        return None
    raised = [f for f in error.facts if isinstance(f, PythonError)]
    if len(raised) != 1 or len(raised) < len(error.facts) or raised[0].rank >= 0:
        return None
    finding = error.finding
    finding.ranks = list(missing.ranks)
    finding.nodes = scene.nodes(finding.ranks)
    finding.story = structs.replace(story, someone=Someone())
    finding.confidence = sure(Ground.LOG_ERROR_OF_ONE_LEFT)
    finding.waiters = missing.waiters
    return First(finding, [*error.facts, *named.facts], True)
