"""Where the reading of one file stands: in which line, and at what time, which a line without a stamp takes from
those before it.
"""

from __future__ import annotations

from ...model.log_facts import AnyFact, KnownError, PythonError, ThreadStack
from .excerpts import Excerpts
from .prefix import Said
from .stamps import ANYWHERE, Clock

_BACK = 1 << 16  # bytes in which a stamp is looked for before a line without one
_STAMP = 40  # characters of one


class PlaceInFile:
    """Of one file."""

    def __init__(self) -> None:
        self.line = 0  # of the line that is read
        self.at = 0.0  # the last stamp of a line that was read
        self.clock = Clock()
        self.excerpts = Excerpts()
        self._passed = (b"", 0)  # the block that is read, and where in it

    def move(self, line: int, block: bytes, begin: int, passed: bool) -> None:
        """The next line that is read, which begins there in its block; `passed`: not all above it were read."""
        self.line = line
        self.excerpts.move(line, block, begin)
        self._passed = (block, begin) if passed else (b"", 0)

    def hear(self, said: Said) -> None:
        """Take the stamp of a line."""
        if said.at > 0:
            self.at = said.at

    def stamp(self, fact: AnyFact, said: Said) -> None:
        """Give a fact its time, where it has none of its own."""
        if fact.at > 0:
            return
        if said.at > 0:
            fact.at = said.at
        elif isinstance(fact, PythonError | ThreadStack | KnownError) and not self.at:
            fact.at, fact.inherited = self._before(), True
        else:
            fact.at, fact.inherited = self.at, True

    def _before(self) -> float:
        """The last stamp before this line, from lines that were passed over."""
        data, at = self._passed
        back = data[max(0, at - _BACK) : at]
        seen = list(ANYWHERE.finditer(back))
        if not seen:
            return 0.0
        last = back[seen[-1].start() :][:_STAMP]
        return self.clock.find(last.decode("utf-8", "replace"))
