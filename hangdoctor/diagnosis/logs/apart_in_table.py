"""A table of where each rank had stopped, as people print or write one, in which few ranks are elsewhere:
they took another way in a function that all are in, and the others stand together below it.
"""

from __future__ import annotations

from ...model.frame import Frame
from ...model.log_facts import LastWords, Progress, ThreadStack
from ...stacks.place_rules import COMMUNICATION
from ...stacks.place_search import find_place
from ..confidence import Ground, sure
from ..findings import Finding
from ..findings.log_places import ApartInTable
from .candidate import First
from .scene import Scene

_LEAST = 3  # ranks, before one can stand out


def apart_in_table(scene: Scene) -> First | None:
    """Fewer than half of the ranks; None where not all are in the table, or in more than two places."""
    rows = [f for f in scene.of(ThreadStack) if f.rank >= 0 and f.guarded and not f.fatal]
    stacks = {f.rank: f for f in rows if f.frames}
    others = [f for f in scene.facts if not isinstance(f, ThreadStack | Progress | LastWords)]
    if len(stacks) < _LEAST or others:
        return None  # something else is in the log
    if set(stacks) != set(range(len(stacks))):
        return None
    sides: dict[str, list[int]] = {}
    for rank, stack in sorted(stacks.items()):
        sides.setdefault(str(stack.frames[0]), []).append(rank)
    few, most = min(sides.values(), key=len), max(sides.values(), key=len)
    if len(sides) != 2 or len(few) >= len(most):
        return None
    mine, theirs = stacks[few[0]].frames, stacks[most[0]].frames
    called = _called_from(mine, theirs)
    if called is None or find_place(mine, blocked=True).kind in COMMUNICATION:
        return None
    story = ApartInTable(tuple(most), there=theirs[0], called=called)
    finding = Finding("not_entered", few, story, sure(Ground.LOG_TABLE), frame=mine[0])
    finding.nodes = sorted({stacks[rank].node for rank in few} - {""})
    finding.where.frame = str(mine[0])
    return First(finding, [stacks[few[0]], stacks[most[0]]], True)


def _called_from(mine: list[Frame], theirs: list[Frame]) -> Frame | None:
    """Where the others left the function that these are in, on another line of it; None of none."""
    inner, outer = mine[0], theirs[-1]
    same = (inner.name, inner.file) == (outer.name, outer.file)
    deeper = len(theirs) > 1 and len(mine) == 1
    return outer if same and deeper and inner.line != outer.line else None
