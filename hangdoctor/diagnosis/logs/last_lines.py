"""The last line of a traceback whose other lines a paste lacks, above the whole one of a process that raised the
same: it is another process's, of which no more is known.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from ...model.log_facts import PythonError
from ..confidence import Ground, sure
from ..findings.log_stories import FailedFirst
from .candidate import Error, First, is_named


def left_alone(errors: Sequence[Error]) -> list[Error]:
    """Lines without a speaker and without frames, below which a process that is known raised the same."""
    return [error for error in errors if any(_repeats(error, other) for other in errors)]


def count_in(found: First, alone: Sequence[Error]) -> None:
    """Say that these processes failed alike, too."""
    story = found.finding.story
    ours = [error for error in alone if any(_repeats(error, fact) for fact in found.facts)]
    if not ours or not isinstance(story, FailedFirst) or story.together:
        return
    more = sum(error.times for error in ours)
    found.finding.story = structs.replace(story, others=max(more, story.others))
    found.finding.confidence = min(found.finding.confidence, sure(Ground.LOG_ALIKE))
    found.facts += ours


def _repeats(alone: object, whole: object) -> bool:
    """Whether the second is the same error, lower in the log, of a speaker that is known."""
    if not isinstance(alone, PythonError) or not isinstance(whole, PythonError):
        return False
    bare = not alone.frames and not alone.logged and not is_named(alone) and bool(alone.message)
    full = bool(whole.frames) and is_named(whole) and whole.line > alone.line
    same = (alone.error, alone.message, alone.file) == (whole.error, whole.message, whole.file)
    return bare and full and same
