"""Tables of ranks and the states of their processes, as ompi-top prints them.

Rank | Nodename | Command | Pid | State | Time | ...
   0 |       n4 |    melt | 812 |     R | 3:27 |
"""

from __future__ import annotations

from ...model.log_facts import RankStates
from ...text.late import late

_ROW = late(
    r"^\s{0,12}(\d{1,7}) +\| +[A-Za-z][\w.-]{0,120} +\| +\S{1,200} +\| +\d{1,9} +\| +([RSDTZ]) +\|"
)
_MOST = 100_000  # rows


class StateTables:
    """Takes the lines of one file one after the other."""

    def __init__(self) -> None:
        self._states: dict[int, str] = {}

    def feed(self, text: str) -> None:
        """Take a line."""
        match = _ROW.match(text) if "|" in text[:200] else None
        if match is not None and len(self._states) < _MOST:
            self._states[int(match[1])] = match[2]

    def rest(self) -> RankStates | None:
        """The last state of each rank, where there are several."""
        if len(self._states) < 2:
            return None
        running = sorted(rank for rank, state in self._states.items() if state == "R")
        others = sorted(set(self._states) - set(running))
        return RankStates(running=running, others=others, says="a table of ranks and their states")
