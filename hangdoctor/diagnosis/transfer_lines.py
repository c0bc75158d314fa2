"""The user's lines at which ranks differ that wait for one another in sends and receives.

A program often wraps the two: `def recv(self, frm)` has one line for all partners. What a rank waits for
is then shown by the line that called the wrapper.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import structs

from ..model.capture import Frame
from ..stacks.user_code import is_users
from ..text.late import late
from .case import op_of, ranks_of, sides_of
from .findings import Op
from .position import steps
from .view import RankView

_WRAPS = late(r"send|recv|receive", re.I)
Sides = tuple[tuple[tuple[int, ...], Op], ...]


def sides_of_ring(views: Sequence[RankView]) -> Sides:
    """Ranks by their call and the line that it was made for, the most first; by the call's own line
    where the calls of two sides were made for one. () where all are in one.
    """
    found: dict[tuple[str, str], list[RankView]] = {}
    for view in views:
        found.setdefault((view.place.op, str(_line(view))), []).append(view)
    lines = {line for _, line in found}
    if len(found) < 2 or len(lines) < len(found):
        return sides_of(views)
    most_first = sorted(found.values(), key=lambda side: (-len(side), side[0].rank))
    return tuple((ranks_of(side), _op_for_line(side)) for side in most_first)


def _op_for_line(side: Sequence[RankView]) -> Op:
    return structs.replace(op_of(side), frame=_line(side[0]))


def _line(view: RankView) -> Frame | None:
    """The innermost line outside of the user's functions that are named for a send or receive."""
    called = view.place.frame
    outward = iter(reversed(steps(view)))
    line = next((frame for frame in outward if frame == called), None)
    while line is not None and is_users(line) and _WRAPS.search(line.own_name):
        line = next(outward, None)
    found = line is not None and is_users(line) and line.name != "<module>"
    return line if found else called
