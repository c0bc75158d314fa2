"""Time stamps of log lines, as seconds since the epoch.

Nothing says in which zone a stamp is, nor that two nodes' clocks agree: stamps order lines, and
their differences count seconds. A stamp without a year (torch's own) takes that of the last one
with a year, and a time without a date that of the last date.
"""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Callable

from ...text.late import late

NO_YEAR = 2000  # stands for the year of a stamp that has none

_CLOCK = r"(?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?"
_ISO = late(r"(?P<y>20\d\d)[-/](?P<mo>\d\d)[-/](?P<d>\d\d)[ T_]" + _CLOCK)
_GLOG = late(r"\[?[EWIF](?P<mo>\d{1,2}?)(?P<d>\d\d) " + _CLOCK)
_SYSLOG = late(
    r"(?P<name>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}(?P<d>\d{1,2}) " + _CLOCK
)
_DASHED = late(  # glued to a program's name, mostly
    r"(?P<y>20\d\d)-(?P<name>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)-(?P<d>\d\d) " + _CLOCK
)
_TIME = late(_CLOCK + r"\b")
_EPOCH = late(r"(1\d{9}\.\d{1,9})(?=[\s\]:,])")
_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_DAY = 86_400.0
ANYWHERE = late(rb"20\d\d[-/]\d\d[-/]\d\d[ T_]\d\d:\d\d:\d\d|[EWIF]\d{3,4} \d\d:\d\d:\d\d\.")


class Clock:
    """Reads the stamps of one file, whose days only go forward."""

    def __init__(self) -> None:
        self.year = NO_YEAR
        self.day = 0.0  # the midnight before the last stamp with a date

    def read(self, text: str) -> tuple[float, int]:
        """(the stamp at the start of `text`, its length), or (0.0, 0)."""
        for pattern, take in _READERS:
            match = pattern.match(text)
            if match is not None:
                at = take(self, match)
                if at > 0:
                    self.day = at - at % _DAY
                return at, match.end()
        return 0.0, 0

    def find(self, text: str) -> float:
        """The first stamp anywhere in `text`, 0.0 where it has none."""
        for pattern, take in _READERS[:2]:
            match = pattern.search(text)
            if match is not None:
                return take(self, match)
        return 0.0

    def _iso(self, match: re.Match[str]) -> float:
        self.year = int(match["y"])
        return _seconds(self.year, int(match["mo"]), match)

    def _yearless(self, match: re.Match[str]) -> float:
        return _seconds(self.year, int(match["mo"]), match)

    def _named(self, match: re.Match[str]) -> float:
        return _seconds(self.year, 1 + _MONTHS.index(match["name"]), match)

    def _dashed(self, match: re.Match[str]) -> float:
        self.year = int(match["y"])
        return self._named(match)

    def _epoch(self, match: re.Match[str]) -> float:
        at = float(match[1])
        self.year = time.gmtime(at).tm_year
        return at

    def _timed(self, match: re.Match[str]) -> float:
        return self.day + _of_day(match) if self.day else 0.0


def _seconds(year: int, month: int, match: re.Match[str]) -> float:
    day = int(match["d"])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return 0.0
    return calendar.timegm((year, month, day, 0, 0, 0)) + _of_day(match)


def _of_day(match: re.Match[str]) -> float:
    whole = int(match["h"]) * 3600 + int(match["mi"]) * 60 + int(match["s"])
    return whole + (float(f"0.{match['f']}") if match["f"] else 0.0)


_READERS: tuple[tuple[re.Pattern[str], Callable[[Clock, re.Match[str]], float]], ...] = (
    (_ISO, Clock._iso),
    (_GLOG, Clock._yearless),
    (_SYSLOG, Clock._named),
    (_DASHED, Clock._dashed),
    (_TIME, Clock._timed),
    (_EPOCH, Clock._epoch),
)
