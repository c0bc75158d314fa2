"""The rank that a person asked a debugger for: `print rank`, and `$1 = 3` below it."""

from __future__ import annotations

import re

from ..text.late import late

# Of the whole job; a local rank is none, and a bare `me` may be anything
_ASKED = late(
    r"^\((?:gdb|lldb)\) (?:p|print|call|inspect)(?:/d)? +"
    r"(?:(?:my|mpi|world|global|proc)_?)?rank_?$|^\((?:gdb|lldb)\) (?:p|print)(?:/d)? +(?:my_?id|mype)$",
    re.I,
)
_ANSWER = late(r"^(?:\((?:const )?\w{1,20}\) )?\$[0-9]{1,6} = ([0-9]{1,7})$")
_LONGEST = 100  # characters of such a line


class DebuggerValues:
    """Takes the lines of one text one after the other."""

    def __init__(self) -> None:
        self._asked = False
        self.told: set[int] = set()  # all ranks that the text showed so

    def feed(self, text: str) -> int:
        """Take a line; the rank that it answers with, -1 for none."""
        if "(" not in text[:1] and not self._asked:
            return -1
        line = text.strip()[:_LONGEST]
        match = _ANSWER.match(line) if self._asked else None
        self._asked = _ASKED.match(line) is not None
        if match is None:
            return -1
        self.told.add(int(match[1]))
        return int(match[1])
