"""Tables of one value a rank, as a program's check of something that all ranks should have alike prints it.

grad_norm across the workers:
rank   0 = 1.52
rank   1 = nan
"""

from __future__ import annotations

import re

from ...model.log_facts import RankValues
from ...text.late import late

_ROW = late(
    r"^\W{0,4}(?:global[_ ])?rank[ _#]{0,6}(\d{1,6})\s{0,6}(?:=|:|->)\s{0,6}"
    r"([-+]?(?:nan|inf(?:inity)?|\d[\d.,]{0,30}(?:e[-+]?\d{1,4})?))\s*$",
    re.I,
)
_MOST = 100_000  # rows
_TITLE = 120  # characters
_SHOWN = 8  # values


class RankTables:
    """Takes the lines of one file one after the other."""

    def __init__(self) -> None:
        self._rows: dict[int, str] = {}
        self._title = self._before = ""

    def feed(self, text: str) -> RankValues | None:
        """The table that this line ends."""
        match = _ROW.match(text) if "ank" in text or "RANK" in text else None
        if match is None:
            done = self.rest()
            self._before = text.strip() or self._before
            return done
        rank, value = int(match[1]), match[2]
        done = self.rest() if rank in self._rows or len(self._rows) >= _MOST else None
        if not self._rows:
            self._title = self._before
        self._rows[rank] = value
        return done

    def rest(self) -> RankValues | None:
        """The table that was begun, where it has more than one row."""
        rows, self._rows = self._rows, {}
        if len(rows) < 2:
            return None
        ranks = sorted(rows)
        values = [rows[rank] for rank in ranks]
        title = self._title[:_TITLE]
        says = f"{title} {', '.join(values[:_SHOWN])}"
        return RankValues(ranks=ranks, values=values, title=title, says=says)
