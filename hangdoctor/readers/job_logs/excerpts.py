"""The lines around those that tell of a failure, as a person reads them first: they may name the reason, the process
or the host beside the line that a rule knows.

Of a traceback they are those above its head, its last two frames, and those below its last line.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...model.log_facts import AnyFact, Ended, KnownError, PythonError, UnreadFailure
from ...model.log_lines import Excerpt, Row
from ...text import redaction
from ...text.plain import readable
from .blocks_shown import block_of
from .habits import ANSI

_ROWS = 8  # above and below, of which the nearest and those of its block are kept at last
_FRAMES = 4  # last lines of a traceback, of two frames
_REACH = 4096  # bytes of the block that are looked through on each side
_SAYS = 200  # characters of a line that are kept
_MOST = 400  # places of one file
_ENDS = 6  # places at each end of a file that are kept at last
_TAIL = 6  # last lines of a file
_BACK = 200  # lines above the one that is read
_RULERS = frozenset("-=*_#~+| \t\r")


class Excerpts:
    """Of one file, whose blocks are there only while they are read."""

    def __init__(self) -> None:
        self._taken: dict[int, Excerpt] = {}
        self._line, self._block, self._begin = 0, b"", 0

    def move(self, line: int, block: bytes, begin: int) -> None:
        """The next line that is read, which begins there in its block."""
        self._line, self._block, self._begin = line, block, begin

    def take(self, line: int, first: int = 0) -> None:
        """Keep the lines around this one, of this block; `first`: what it tells begins in that line."""
        if line in self._taken or len(self._taken) >= _MOST:
            return
        begin = self._back(self._line - line)
        if begin < 0:
            return
        traced = 0 < first < line
        data, head = self._block, self._back(self._line - first) if traced else begin
        end = data.find(b"\n", begin) + 1 or len(data)
        above = data[max(0, head - _REACH) : max(0, head)].split(b"\n")[:-1]
        top = (first if traced else line) - len(above)
        rows = _rows(above, top)[-_ROWS:]
        if traced and head >= 0:
            body = data[max(head, begin - _REACH) : begin].split(b"\n")[:-1]
            rows += _rows(body, line - len(body))[-_FRAMES:] if len(body) > _FRAMES else []
        rows += _rows([data[begin:end]], line)
        rows += _rows(data[end : end + _REACH].split(b"\n"), line + 1)[:_ROWS]
        self._taken[line] = Excerpt(line=line, rows=rows)

    def found(self, index: int, facts: Sequence[AnyFact]) -> list[Excerpt]:
        """At the file's end: those of the facts that may be told, and its last lines."""
        told = {fact.line: fact for fact in facts if fact.file == index and may_be_shown(fact)}
        for line, fact in sorted(told.items()):
            self.take(line, began_in(fact))
        there = [self._taken[line] for line in sorted(told) if line in self._taken]
        kept = there if len(there) <= 2 * _ENDS else there[:_ENDS] + there[-_ENDS:]
        for one in kept:
            one.rows = block_of(one.rows, one.line, began_in(told[one.line]))
        last = self._block[-_REACH:].split(b"\n")
        below = self._block.count(b"\n", self._begin)
        rows = _rows(last, self._line + below - len(last) + 1)[-_TAIL:]
        kept += [Excerpt(rows=rows)] if rows else []
        for one in kept:
            one.file = index
        return kept

    def _back(self, lines: int) -> int:
        """Where the line begins that is `lines` above the one that is read; -1: not in its block."""
        begin = self._begin
        if not 0 <= lines <= _BACK:
            return -1
        for _ in range(lines):
            if begin <= 0:
                return -1
            begin = self._block.rfind(b"\n", 0, begin - 1) + 1
        return begin


def may_be_shown(fact: AnyFact) -> bool:
    """Whether it may be what a verdict tells, while its line is not all that says why."""
    if isinstance(fact, KnownError | PythonError):
        return fact.role in ("cause", "consequence") and not fact.survived
    return isinstance(fact, Ended | UnreadFailure)


def began_in(fact: AnyFact) -> int:
    """The line of a traceback's head; 0 for what is told in one line."""
    return fact.began if isinstance(fact, PythonError) else 0


def _rows(lines: Sequence[bytes], first: int) -> list[Row]:
    """Those that say something."""
    rows = []
    for number, raw in enumerate(lines, start=first):
        text = ANSI.sub("", raw[: 4 * _SAYS].decode("utf-8", "replace"))
        text = text.strip("\r\n").rpartition("\r")[2]
        if text.strip() and not set(text) <= _RULERS:
            rows.append(Row(number, readable(redaction.text(text.rstrip()[:_SAYS]))))
    return rows
