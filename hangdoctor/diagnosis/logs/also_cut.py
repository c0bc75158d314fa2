"""Rows of torchelastic's table that a paste has cut before their exit codes: of ranks that failed, too."""

from __future__ import annotations

from msgspec import structs

from ...model.log_facts import CutEnd, Ended
from ..findings.log_stories import LoggedDeath
from .candidate import First
from .scene import Scene, ranks_named


def with_cut_rows(scene: Scene, first: Ended, found: First) -> First:
    """The same, with the ranks of whose end at that moment the log has only such a row."""
    finding, story = found.finding, found.finding.story
    cut = set(ranks_named(_rows(scene, first))) - set(finding.ranks)
    if cut and isinstance(story, LoggedDeath):
        finding.ranks = sorted({*finding.ranks, *cut})
        finding.story = structs.replace(story, cut=tuple(sorted(cut)))
    return found


def _rows(scene: Scene, first: Ended) -> list[CutEnd]:
    """Of the same table: of the first observed failure, or of the same second."""
    if first.by != "torchelastic" or first.first:
        return []
    rows = [f for f in scene.of(CutEnd) if f.file == first.file]
    return [f for f in rows if f.first or (f.at > 0 and abs(f.at - first.at) < 1.0)]
