"""Further ranks that failed by themselves: what they raised no operation can have brought."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from ...model.log_facts import PythonError
from ..findings.log_stories import FailedFirst
from .beside import CRASH
from .candidate import First
from .first_error import of_errors
from .scene import Scene, ranks_named


def others_of_their_own(scene: Scene, found: First | None) -> list[First]:
    """One for each rank that raised an exception of its own after another one had failed."""
    if found is None or found.finding.kind not in CRASH:
        return []
    named = {*found.finding.ranks, *ranks_named(found.facts)}
    errors = [f for f in scene.of(PythonError) if f.independent and f.rank not in named]
    if _all_alike(scene, errors, named):
        return []
    further = [of_errors(scene, error, [error]) for error in errors]
    for first in further:
        if isinstance(first.finding.story, FailedFirst):
            first.finding.story = structs.replace(first.finding.story, later=True)
    return further


def _all_alike(scene: Scene, errors: Sequence[PythonError], named: set[int]) -> bool:
    """Whether all other ranks, several, raised one error at one line: they missed what the first one had
    to bring, as a file that they waited for.
    """
    raised = {(f.error, str(f.frame)) for f in errors}
    others = set(scene.everyone) - named
    return len(others) > 1 and len(raised) == 1 and {f.rank for f in errors} == others
