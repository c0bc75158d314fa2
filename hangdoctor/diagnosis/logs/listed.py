"""Processes that a list of ps or top shows as ended, stopped, or in a sleep that nothing interrupts."""

from __future__ import annotations

from ...model.log_facts import Listed
from ..confidence import Ground, sure
from ..findings import Finding
from ..findings.log_places import SeenInList
from .candidate import First
from .scene import Scene

_KINDS = {"Z": "dead", "T": "stopped", "D": "io_wait"}


def listed(scene: Scene) -> First | None:
    """Those of the last list."""
    facts = scene.of(Listed)
    if not facts:
        return None
    last = facts[-1]
    story = SeenInList(last.state, tuple(last.pids), tuple(last.others), name=last.name)
    ground = Ground.LOG_LISTED
    if last.state == "D" or not last.kin:
        ground = Ground.LOG_LISTED_ONCE
    finding = Finding(
        kind=_KINDS[last.state],  # type: ignore[arg-type]
        ranks=[],
        story=story,
        confidence=sure(ground),
        nodes=[last.node] if last.node else [],
    )
    return First(finding, [last], False)
