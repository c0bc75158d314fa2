"""Makes a report fit on one screen: words wrap whole, commands stay in one piece, long sections are
shortened.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct
from rich.console import Console
from rich.text import Text

# A blank inside a command. Private use: texts of the job cannot contain it (`text.plain.visible`).
_GLUE = "\ue000"
_COMMANDS = re.compile(
    r"(?:hangdoctor )?run -- CMD|run --|py-spy (?:dump|top)(?: --[a-z]+)* --pid \d+|kill -[A-Z]+ \d+"
    r"|dmesg -T(?: \| tail)?|less \+\d+ \S+|hangdoctor [a-z]+ [^\s;,)]+"
)
_LEAST = 3  # lines of a section: a blank one, its heading and the first
_HEADING = 2  # ... where that is still too much
_INDENT = 5  # of what is wrapped, below the words behind "HANG" and "DO"


class Section(Struct):
    """Lines with rich's markup that belong together; a `whole` one is never shortened."""

    lines: list[str]
    whole: bool = False


def fit(sections: Sequence[Section], console: Console, rows: int) -> list[Section]:
    """The sections without what does not fit into `rows`; the longest is shortened first.

    A shortened section ends with ``6 more lines: --full``.
    """
    tall = [[height(line, console) for line in section.lines] for section in sections]
    kept = [len(section.lines) for section in sections]
    for least in (_LEAST, _HEADING):
        floors = [len(s.lines) if s.whole else least for s in sections]
        _shorten(tall, kept, floors, rows)
    return [_shortened(s, n) for s, n in zip(sections, kept, strict=True)]


def _shorten(tall: Sequence[Sequence[int]], kept: list[int], floors: list[int], rows: int) -> None:
    """Take lines off `kept`, from the longest section first, until all take `rows` or none may go."""
    numbers = range(len(kept))
    while True:
        heights = [sum(tall[i][: kept[i]]) + (kept[i] < len(tall[i])) for i in numbers]
        # Of a whole section one row is not enough: a row that says so comes in its place.
        spare = [sum(tall[i][floors[i] : kept[i]]) - (kept[i] == len(tall[i])) for i in numbers]
        may_go = [i for i in numbers if spare[i] > 0]
        if sum(heights) <= rows or not may_go:
            return
        kept[max(may_go, key=lambda i: heights[i])] -= 1


def _shortened(section: Section, kept: int) -> Section:
    more = len(section.lines) - kept
    if not more:
        return section
    lines = "line" if more == 1 else "lines"
    return Section([*section.lines[:kept], f"  [dim]{more} more {lines}: --full[/]"])


def height(line: str, console: Console) -> int:
    """How many rows a line takes."""
    return len(wrapped(line, console))


def wrapped(line: str, console: Console) -> list[Text]:
    """A line with markup as the rows of the console; only a terminal wraps."""
    text = Text.from_markup(line, emoji=False)
    if not console.is_terminal or text.cell_len <= console.width:
        return [text]
    text.plain = _COMMANDS.sub(lambda m: m[0].replace(" ", _GLUE), text.plain)
    first, *rest = text.wrap(console, console.width - _INDENT)
    rows = [first, *(Text(" " * _INDENT).append_text(row) for row in rest)]
    for row in rows:
        row.rstrip()
        row.plain = row.plain.replace(_GLUE, " ")
    return rows
