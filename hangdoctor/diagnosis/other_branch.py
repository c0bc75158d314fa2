"""A rank that makes two calls in the other order, one of all ranks and one of a smaller communicator.

Its partner of the smaller one waits there alone, all others in the call of all: the rank itself is among
them, and only its line differs.
"""

from __future__ import annotations

from ..text.late import late
from .position import steps
from .view import RankView

_CALLED_ON = late(
    r"\b([A-Za-z_][\w.]*)\.(?:[A-Z][a-z_]+v?w?|barrier|bcast|gather|scatter|reduce|all(?:gather|reduce|toall))\("
)
_MANY = 4  # ranks in one operation, of which one came by another line


def by_other_lines(earliest: list[RankView], rest: list[RankView]) -> RankView | None:
    """The one of many in an operation that came to it by another line, while a rank waits before it in
    one of another communicator: it took another branch, and left out what that one waits for.
    """
    owners = {_owner(view) for view in (*earliest, *rest)}
    if len(earliest) != 1 or len(owners) != 2 or None in owners:
        return None
    if len({_owner(view) for view in rest}) > 1 or len({v.place.at for v in rest}) > 1:
        return None
    ways: dict[object, list[RankView]] = {}
    for view in rest:
        ways.setdefault(tuple((f.name, f.file, f.line) for f in steps(view)), []).append(view)
    alone = [views[0] for views in ways.values() if len(views) == 1]
    return alone[0] if len(ways) == 2 and len(alone) == 1 and len(rest) >= _MANY else None


def _owner(view: RankView) -> str | None:
    """What its line calls the operation on, as ``world`` of ``world.Allreduce(x, y)``."""
    frame = view.place.frame
    match = _CALLED_ON.search(frame.code) if frame is not None else None
    return match[1] if match is not None else None
