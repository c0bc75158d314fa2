"""The message of an uncaught exception of C++, where it is in the lines below ``what():``, or where there is none.

terminate called after throwing an instance of 'lake::InputError'
what():
(core/Tile.cpp:75) void lake::Tile::error(const std::string&) const     <- the place: no words
unknown key DEPHT in the input of tile 3                                <- the words

Joined with ``what():``, as most programs print them, they are for the rules.
"""

from __future__ import annotations

import re

from msgspec import Struct, structs

from ...text.late import late
from .prefix import Said, Speaker

_BELOW = 5  # lines in which the words may begin
_OPEN = 16  # speakers that are listened to at once
_THROWN = late(r"\s{0,8}terminate called after throwing an instance of '([^']{1,200})'")
_WHAT = late(r"\s{0,8}what\(\):(.{0,400})")
_PLACE = late(r"\W{0,3}[\w./+-]{1,200}\.(?:c|cc|cpp|cxx|cu|cuh|h|hpp|hh):\d{1,7}\b")
_RULER = late(r"[\s*|#=_.+-]{0,400}")
_OF_CXX = "  what():  "
# Thrown for what another process did, mostly
_OF_OTHERS = late(r"(?:c10|gloo|torch|nccl|boost::mpi)::|[Tt]imeout|[Cc]onnection", re.I)


class Joined(Struct):
    """A line that the rules are to read, and its number."""

    said: Said
    line: int


class _Heard(Struct):
    thrown: str  # the type of the exception; "" where its line is missing
    said: Said
    line: int
    left: int = _BELOW
    opened: bool = False  # ``what():`` was read, and nothing behind it


class CxxWords:
    """Takes the lines of one file one after the other."""

    def __init__(self) -> None:
        self._heard: dict[Speaker, _Heard] = {}

    def feed(self, said: Said, line: int) -> list[Joined]:
        """The next line; what it completes."""
        who, text = said.speaker(), said.text
        thrown = _THROWN.match(text)
        if thrown is not None:
            before = self._heard.pop(who, None)
            if len(self._heard) < _OPEN:
                self._heard[who] = _Heard(thrown[1], said, line)
            return _alone(before)
        what = _WHAT.match(text)
        if what is not None:
            before = self._heard.pop(who, None)
            if not what[1].strip() and len(self._heard) < _OPEN:
                heard = before or _Heard("", said, line)
                self._heard[who] = structs.replace(heard, left=_BELOW, opened=True)
            return []
        return self._go_on(who, said, line)

    def _go_on(self, who: Speaker, said: Said, line: int) -> list[Joined]:
        heard = self._heard.get(who)
        if heard is None:
            return []
        heard.left -= 1
        words = said.text.strip()
        empty = _RULER.fullmatch(words) is not None or _PLACE.match(words) is not None
        if heard.opened and not empty:
            del self._heard[who]
            return [Joined(structs.replace(said, text=f"{_OF_CXX}{words}"), line)]
        if heard.left <= 0:
            del self._heard[who]
            return _alone(heard)
        return []

    def rest(self) -> list[Joined]:
        """At the end of the file."""
        return [joined for heard in self._heard.values() for joined in _alone(heard)]

    @property
    def reads(self) -> bool:
        """Whether the next line may belong to it."""
        return bool(self._heard)


def _alone(heard: _Heard | None) -> list[Joined]:
    """The type of the exception, where no words of it were found."""
    if heard is None or not heard.thrown or _OF_OTHERS.search(heard.thrown) is not None:
        return []
    return [Joined(structs.replace(heard.said, text=f"{_OF_CXX}{heard.thrown}"), heard.line)]
