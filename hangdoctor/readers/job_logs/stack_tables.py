"""A table of ranks and the innermost frame of each, as people write one from py-spy's dumps; further
frames below a row are its callers.

DP0,3,5,7:  broadcast  (torch/distributed/distributed_c10d.py:2841)
DP1:        init_metadata  (backend.py:746)
              prepare  (worker.py:163)

ranks [0, 2]  stopped at  backend.py:746 in init_metadata
      via  worker.py:163 in prepare

One that names a rank twice, or two kinds of numbers, is none. A place along one axis alone is taken
for the rank, as in the names of workers.
"""

from __future__ import annotations

import re

from msgspec import Struct

from ...errors import UsageError
from ...model.frame import Frame
from ...model.log_facts import ThreadStack
from ...text.late import late
from ...text.ranges import parse_ranks

_LIST = r"\d{1,6}(?:-\d{1,6})?(?: ?, ?\d{1,6}(?:-\d{1,6})?){0,400}"
_PLACE = r"`?(?P<name>[A-Za-z_<][\w.<>]{0,120})(?:\(\))?`?[ \t]{0,60}[(@][ ]?`?(?P<file>[\w./+-]{1,300}\.\w{1,4}):(?P<line>\d{1,7})`?\)?"
# The same the other way round: `mesh.py:40 in build`, `mesh.py:40 (build)`
_TURNED = r"`?(?P<file>[\w./+-]{1,300}\.\w{1,4}):(?P<line>\d{1,7})`?,?[ \t]{1,8}(?:in |\()`?(?P<name>[A-Za-z_<][\w.<>]{0,120})`?(?:\(\))?\)?(?=\s*$|[:,]|\s{2}|\s\|)"
_VERB = r"(?:is |are |was |were )?(?:stopped|stuck|waits?|waiting|stands?|standing|hangs?|hanging|hung|blocked|sits?|sitting|still|spinning)"
_AT = rf"(?:{_VERB}[ \t]{{1,8}})?(?:in|at|inside)\b:?"
_LINK = rf"(?P<link>[ \t]{{0,40}}(?::|\||->|=>|→)[ \t]{{0,40}}(?:{_AT})?|[ \t]{{1,40}}{_AT})"
_HOST = r"(?:[ \t]{0,8}(?:\||@|on|\()[ \t]?(?P<node>[A-Za-z][\w.-]{0,120})\)?)?"
_WHO = (
    rf"^\s{{0,12}}(?:[-*|] ?)?(?P<axis>[Rr]anks?|DP|TP|PP|EP|[Ww]orkers?|[Pp]rocess(?:es)?)[ \t#_]{{0,4}}\[?"
    rf"(?P<ranks>{_LIST})\]?{_HOST}{_LINK}[ \t]{{0,60}}"
)
_ROWS = (late(_WHO + _PLACE), late(_WHO + _TURNED))
# Below a head whose first column is the rank
_HEAD = late(r"^\s{0,12}\|?\s{0,12}(?P<axis>[Rr]anks?|RANK)(?:\s{0,12}\||\s{2,60}).{1,200}$")
_NEXT = r"(?:\s{0,20}\|\s{0,20}|\s{2,40})"
_COLUMNS = rf"^\s{{0,12}}\|?\s{{0,12}}(?P<ranks>{_LIST}){_NEXT}(?:(?P<node>[A-Za-z][\w.-]{{0,120}}){_NEXT})?"
_UNDER_HEAD = (late(_COLUMNS + _PLACE), late(_COLUMNS + _TURNED))
_CALLER = r"^\s{2,80}(?:[-*|<]-? ?)?(?:(?:via|from|by|called (?:from|by)|in|at)[ \t]{1,8})?"
_FURTHERS = (late(_CALLER + _PLACE), late(_CALLER + _TURNED))
_SOURCES = (".py:", ".cpp:", ".cc:", ".c:", ".cu:", ".F90:", ".f90:", ".jl:")
_LEAST = 3  # ranks, before one can stand out
_MOST = 100_000


class _Row(Struct):
    axis: str
    ranks: list[int]
    frames: list[Frame]
    node: str = ""
    still: bool = False  # the words say that nothing moved there
    says: str = ""


class StackTables:
    """Takes the lines of one file one after the other."""

    def __init__(self) -> None:
        self._rows: list[_Row] = []
        self._headed = False

    def feed(self, text: str) -> list[ThreadStack]:
        """The stacks of a table that this line ends, one of each rank; [] else."""
        if not self._rows and not any(end in text for end in _SOURCES):
            self._headed = self._headed or _HEAD.match(text) is not None
            return []
        row = _first(_ROWS, text)
        if row is None and self._headed:
            row = _first(_UNDER_HEAD, text)
        if row is not None:
            self._rows.append(_read(row, text))
            return []
        if not self._rows:
            return []
        further = _first(_FURTHERS, text)
        if further is not None:
            self._rows[-1].frames.append(_frame(further))
            return []
        return self.rest() if text.strip() else []

    def rest(self) -> list[ThreadStack]:
        """The stacks of a table that the end of the file has ended."""
        rows, self._rows, self._headed = self._rows, [], False
        ranks = [rank for row in rows for rank in row.ranks]
        one = len({row.axis for row in rows}) == 1 and len(set(ranks)) == len(ranks)
        if not one or not _LEAST <= len(ranks) <= _MOST or len(rows) < 2:
            return []
        still = all(row.still for row in rows)
        return [
            ThreadStack(rank=rank, node=row.node, frames=row.frames, guarded=still, says=row.says)
            for row in rows
            for rank in row.ranks
        ]


def _read(match: re.Match[str], text: str) -> _Row:
    told = match.groupdict()
    axis = (told.get("axis") or "rank").lower().removesuffix("es").removesuffix("s")
    words = [word for word in (told.get("link") or "").split() if word.strip(":").isalpha()]
    still = len(words) > 1  # a verb and where, as "stopped at"
    numbers = _numbers(match["ranks"])
    return _Row(axis, numbers, [_frame(match)], match["node"] or "", still, says=text)


def _first(patterns: tuple[re.Pattern[str], ...], text: str) -> re.Match[str] | None:
    return next((m for pattern in patterns if (m := pattern.match(text)) is not None), None)


def _frame(match: re.Match[str]) -> Frame:
    return Frame(match["name"], match["file"], int(match["line"]))


def _numbers(text: str) -> list[int]:
    """The ranks; [] for what no list of ranks is."""
    try:
        return parse_ranks(text.replace(" ", ""))
    except UsageError:
        return []
