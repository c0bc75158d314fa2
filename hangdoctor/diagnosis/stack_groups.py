"""Groups of ranks that share one stack."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.diagnosis import StackFrame, StackGroup
from .position import steps
from .view import RankView


def group_stacks(views: Sequence[RankView]) -> list[StackGroup]:
    """Ranks by the stack of the thread that shows where they are, largest group first."""
    groups: dict[tuple[object, ...], StackGroup] = {}
    looks: dict[tuple[str, int], StackGroup] = {}
    for view in views:
        if view.gone or not view.path:
            continue
        thread = view.thread.name if view.thread is not None else ""
        group = looks.get((thread, id(view.look)))
        if group is None:
            group = looks[thread, id(view.look)] = _group(groups, thread, view)
        group.ranks.append(view.rank)
    return sorted(groups.values(), key=lambda g: (-len(g.ranks), g.ranks))


def _group(groups: dict[tuple[object, ...], StackGroup], thread: str, view: RankView) -> StackGroup:
    frames = [StackFrame(f.name, f.file, f.line) for f in steps(view)]
    key = (thread, *((f.name, f.file, f.line) for f in frames))
    return groups.setdefault(key, StackGroup([], thread, frames))
