"""The one rank that names another root for a collective than all others do.

Small messages to a root are on their way before the root asks for them: all but the two that take
themselves for the root are past the call, and those two wait in it. The lines of all say which root
they mean, as ``comm.gather(x, root=best)``; mpi4py has no frame that does. Who is past the call still has
the variable that named the root, as long as it is in the function that made the call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..model.capture import Frame
from ..stacks.loop_counts import ROOT_OF
from ..stacks.root_names import ROOTED
from . import findings as f
from . import other_tag
from .case import Case, op_of, ranks_of
from .confidence import Ground
from .findings import Finding
from .position import counters, program
from .view import RankView

_OTHERS = 2  # that agree, at least


def find(case: Case, waiting: Sequence[RankView]) -> Finding | None:
    """Name it where the lines or the variables of all ranks name a root, and all others name one."""
    return _by_lines(case, waiting) or _by_variables(case, waiting)


def _by_lines(case: Case, waiting: Sequence[RankView]) -> Finding | None:
    roots = {view.rank: root for view in waiting if (root := _root(view)) is not None}
    strange = other_tag.strange_one(roots, _OTHERS) if len(roots) == case.world_size else None
    if strange is None:
        return None
    view, others = other_tag.apart(waiting, strange)
    own, usual = roots[strange], roots[others[0].rank]
    story = f.OtherTag("root", own, usual, op_of([view]), ranks_of(others), is_root=True)
    return other_tag.finding_of(case, story, view, others, Ground.ROOTS)


def _root(view: RankView) -> int | None:
    """The root that the line of its collective names."""
    frame = view.place.frame
    if view.place.kind != "collective" or frame is None or "root" not in frame.code:
        return None
    return frame.values.get("root")


def _by_variables(case: Case, waiting: Sequence[RankView]) -> Finding | None:
    """Of ranks that are past the call too, while one at least is still in it."""
    held = [view for view in waiting if _names_root(view)]
    if not held or len(case.alive) != case.world_size:
        return None
    for frame in reversed(program(held[0].path)):
        at = {view.rank: _same(view, frame) for view in case.alive}
        frames = {rank: one for rank, one in at.items() if one is not None}
        if len(frames) < case.world_size:
            continue
        if len({counters([one]) for one in frames.values()}) > 1:
            return None  # in another round it may be another root
        for name in _roots_of(frame):
            own = {rank: one.values[name] for rank, one in frames.items() if name in one.values}
            strange = other_tag.strange_one(own, _OTHERS) if len(own) == case.world_size else None
            if strange is not None:
                return _told(case, held, strange, name.removeprefix(ROOT_OF), own)
    return None


def _told(
    case: Case, held: list[RankView], rank: int, name: str, numbers: dict[int, int]
) -> Finding:
    [view] = [v for v in case.alive if v.rank == rank]
    others = [v for v in case.alive if v is not view]
    usual = numbers[others[0].rank]
    story = f.OtherRoot(name, numbers[rank], usual, op_of(held), ranks_of(held))
    return other_tag.finding_of(case, story, view, others, Ground.ROOTS)


def _same(view: RankView, frame: Frame) -> Frame | None:
    """Where a rank is in the same function."""
    at = (frame.name, frame.file)
    return next((one for one in reversed(view.path) if (one.name, one.file) == at), None)


def _roots_of(frame: Frame) -> Iterator[str]:
    return (name for name in frame.values if name.startswith(ROOT_OF))


def _names_root(view: RankView) -> bool:
    """Whether it waits in a collective, called by a function in which a variable names the root."""
    if view.place.kind != "collective" or view.place.op.lower() not in ROOTED:
        return False
    return any(any(_roots_of(frame)) for frame in view.path)
