"""What one reading of a ring of waits comes to: the ranks that made different calls."""

from __future__ import annotations

from msgspec import Struct

from ..model.diagnosis import Kind
from .confidence import Ground
from .findings import Apart
from .view import RankView

Views = dict[int, RankView]


class Odd(Struct):
    """Ranks that made different calls, by one reading of a ring."""

    kind: Kind
    ranks: list[int]
    instead: list[int]  # the ranks that they differ from
    how: Apart
    ground: Ground
    or_else: list[int] = []  # who it may be as well: stacks do not show which of the two sides
