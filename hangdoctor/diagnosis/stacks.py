"""Groups of ranks that share one stack."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.diagnosis import StackFrame, StackGroup
from .position import program
from .view import RankView


def group_stacks(views: Sequence[RankView]) -> list[StackGroup]:
    """Ranks by the stack of the thread that shows where they are, largest group first."""
    groups: dict[tuple[object, ...], StackGroup] = {}
    for view in views:
        if view.gone or not view.path:
            continue
        frames = [StackFrame(f.name, f.file, f.line) for f in program(view.path)]
        thread = view.thread.name if view.thread is not None else ""
        key = (thread, *((f.name, f.file, f.line) for f in frames))
        groups.setdefault(key, StackGroup([], thread, frames)).ranks.append(view.rank)
    return sorted(groups.values(), key=lambda g: (-len(g.ranks), g.ranks))
