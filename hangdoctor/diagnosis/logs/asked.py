"""A question on standard input that is the last that the program printed, while nothing went on."""

from __future__ import annotations

from ...model.log_facts import Asked, Finished, Progress
from ..confidence import Ground, sure
from ..findings import Finding
from ..findings.log_places import AsksInput
from .candidate import First
from .scene import Scene


def asks(scene: Scene) -> First | None:
    """The last question, where no rank has printed progress or a clean end since."""
    open_ones = [f for f in scene.of(Asked) if not f.answered]
    if not open_ones:
        return None
    last = open_ones[-1]
    later = [f for f in [*scene.of(Progress), *scene.of(Finished)] if f.file == last.file]
    if any(fact.line > last.line for fact in later):
        return None
    if any(fact.file != last.file and fact.at > last.at > 0 for fact in scene.of(Progress)):
        return None
    name = scene.logs.files[last.file].name
    ranks = [last.rank] if last.rank >= 0 else []
    finding = Finding(
        kind="not_entered",
        ranks=ranks,
        story=AsksInput(last.question, f"{name}:{last.line}", last.debugger),
        confidence=sure(Ground.LOG_ASKED),
        nodes=scene.nodes(ranks),
    )
    return First(finding, [last], bool(ranks))
