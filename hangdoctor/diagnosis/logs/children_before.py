"""A parent that had seen a child fail, above the first error that the log has: the log lacks the words of that one,
so that the error is not shown to be the first.
"""

from __future__ import annotations

from msgspec import structs

from ...model.log_facts import Ended, KnownError, PythonError
from ..confidence import Ground, sure
from ..findings.log_stories import FailedFirst
from .candidate import First
from .scene import Scene

_RULE = "child_failed"


def without_their_words(scene: Scene, found: First) -> First:
    """The error, with the report that stands above it where nothing else explains that."""
    story, first = found.finding.story, found.facts[0]
    if not isinstance(story, FailedFirst) or story.others or story.together:
        return found
    reports = [f for f in scene.of(KnownError) if f.rule == _RULE and f.file == first.file]
    began = (first.began if isinstance(first, PythonError) else 0) or first.line
    above = [f for f in reports if f.line < began]
    if not above or _is_explained(scene, above[0]):
        return found
    report = above[0]
    found.finding.story = structs.replace(story, child_before=scene.quote(report))
    found.finding.confidence = min(found.finding.confidence, sure(Ground.LOG_ERROR_CUT))
    found.facts.append(report)
    return found


def _is_explained(scene: Scene, report: KnownError) -> bool:
    """Whether a child's error, or end, stands above the report."""
    words = [*scene.of(PythonError), *scene.of(Ended), *scene.unread]
    words += [f for f in scene.of(KnownError) if f.role != "launcher"]
    return any(f.file == report.file and f.line < report.line for f in words)
