"""Whose a failure without a name is, by the lines right beside its own: where those tell a failure
of one rank or process, and of no other, the verdict says so; else in which of several files alike
it stands, where each process has its own. No rank is named as the culprit by that.
"""

from __future__ import annotations

from msgspec import structs

from ...model.log_facts import AnyFact, PythonError
from ...text.late import late
from ..findings.log_stories import FailedFirst, FailedInWords, LinkBroken, Someone
from .candidate import First
from .scene import Scene

_NEAR = 3  # lines
_NUMBER = late(r"\d+")


def name_beside(scene: Scene, found: First) -> None:
    """Tell whose failure the lines around its own are of."""
    story, finding = found.finding.story, found.finding
    who = _beside(scene, found)
    if isinstance(story, FailedFirst | FailedInWords):
        if story.someone == Someone() and not (finding.ranks or finding.nodes):
            someone = Someone(beside=who, file="" if who else _own_file(scene, found))
            finding.story = structs.replace(story, someone=someone)
    elif not who:
        return
    elif isinstance(story, LinkBroken) and not (story.by or story.hosts or story.process):
        finding.story = structs.replace(story, beside=who)


def _own_file(scene: Scene, found: First) -> str:
    """The file that all of it stands in, where others have that name with another number."""
    files = {fact.file for fact in found.facts}
    if len(files) != 1:
        return ""
    [name] = [scene.logs.name_of(file) for file in files]
    stem = _NUMBER.sub("#", name)
    alike = [file for file in scene.logs.files if _NUMBER.sub("#", file.name) == stem]
    return name if len(alike) > 1 and stem != name else ""


def _beside(scene: Scene, found: First) -> str:
    """The one name; "" where several processes said the same, or where the lines have several names."""
    if not found.facts:
        return ""
    first = found.facts[0]
    if first.times > 1 or len({(f.file, f.line) for f in found.facts}) > 1:
        return ""
    rows = [
        row
        for one in scene.logs.excerpts
        if (one.file, one.line) == (first.file, first.line)
        for row in one.rows
    ]
    names = {row.who for row in rows if row.who and _is_near(row.line, first)}
    return names.pop() if len(names) == 1 else ""


def _is_near(line: int, fact: AnyFact) -> bool:
    begins = fact.began if isinstance(fact, PythonError) else fact.line
    return min(abs(line - fact.line), abs(line - begins)) <= _NEAR
