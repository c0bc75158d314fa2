"""The rank that the only process of a file prints of itself, as a line of its configuration.

dist_rank: 3        self.dist_rank: 3        "rank": 3,

Rank 0 often prints its configuration alone, into a log that all share: of it nothing follows. Another rank
does so where each has a file of its own.
"""

from __future__ import annotations

from ...text.late import late
from .prefix import Said

_LINE = late(
    r"^\W{0,12}(?:\w{1,40}\.){0,3}(?:dist_|global_|mpi_)?rank['\"]?\s{0,20}[:=]\s{0,20}(\d{1,7})\s{0,4},?\s*$"
)


class OwnRank:
    """Takes the lines of one file one after the other."""

    def __init__(self) -> None:
        self._printed: set[int] = set()
        self._processes: set[tuple[str, int]] = set()
        self._others = False  # a line has another rank's number

    def look(self, said: Said) -> None:
        """Take one line."""
        if said.pid:
            self._processes.add((said.node, said.pid))
        self._others |= said.rank >= 0
        if "rank" in said.text and said.rank < 0 and (match := _LINE.match(said.text)) is not None:
            self._printed.add(int(match[1]))

    def found(self) -> tuple[tuple[str, int], int] | None:
        """Node and process, and its rank."""
        if len(self._printed) != 1 or len(self._processes) != 1 or self._others:
            return None
        [rank], [process] = self._printed, self._processes
        return (process, rank) if rank > 0 else None
