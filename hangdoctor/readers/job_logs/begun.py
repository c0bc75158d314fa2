"""Whose an error is that has no prefix, by a line just above it in which a process says who it is:
``[init] host=n2 rank=1 world=2 master=n1:29500``.

Where several processes say it one after the other, their output is mixed: then nothing shows.
"""

from __future__ import annotations

import re

import msgspec

from ...text.late import late
from .introduced import rank_named
from .prefix import Said
from .unread import speaks_of_trouble

_HOST = late(r"\b(?:host(?:name)?|node(?:[ _]?name)?)\s?[=:]\s?\[?([A-Za-z0-9][\w.-]{0,127})")
_BEGINS = late(r"\b(?:host(?:name)?|world(?:[ _]?size)?|ws|nranks|master(?:_addr)?)\s?[=:]", re.I)
_NEAR = 3  # lines


class Begun:
    """Takes the lines of one file that have no speaker."""

    def __init__(self) -> None:
        self._who: Said | None = None
        self._line = -_NEAR - 1

    def look(self, said: Said, line: int) -> int:
        """Take a line; the rank that says in it that it begins, -1 for none."""
        if "rank" not in said.text and "RANK" not in said.text:
            return -1
        rank = rank_named(said.text) if said.rank < 0 else -1
        if rank < 0 or _BEGINS.search(said.text) is None or speaks_of_trouble(said.text):
            return -1
        host = _HOST.search(said.text)
        mixed = line - self._line <= _NEAR
        node = host[1] if host is not None else said.node
        self._who = None if mixed else Said(rank=rank, node=node)
        self._line = line
        return -1 if mixed else rank

    def whose(self, said: Said, line: int) -> Said:
        """The line as its process says it, where the lines above show that."""
        if said.rank >= 0 or self._who is None or line - self._line > _NEAR:
            return said
        node = said.node or self._who.node
        return msgspec.structs.replace(said, rank=self._who.rank, node=node)
