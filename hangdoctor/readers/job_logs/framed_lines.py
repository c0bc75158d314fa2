"""Lines within a frame, as a terminal program that shows a log draws it around them:

│ Traceback (most recent call last):                 │
│   File "/job/fit.py", line 9, in <module>          │

Boxes of rich's tracebacks, and tables, are no such frame: they have corners, or columns.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...text.late import late

_LEFT = late(r"^\s{0,4}[│┃║] ?(?=\s|\S)")
_RIGHT = late(r"\s{0,400}[│┃║]\s{0,8}$")
_BARS = "│┃║"
_OTHER = ("╭", "╰", "❱", "┬", "┼", "┴", "╔", "┏", "┌")
_FEWEST = 4  # lines that show it


def are_framed(lines: Sequence[str]) -> bool:
    """Whether most lines with text are in a frame, and nothing else is drawn with such signs."""
    told = [line for line in lines if line.strip()]
    if len(told) < _FEWEST or any(sign in line for line in told for sign in _OTHER):
        return False
    framed = [line for line in told if _LEFT.match(line) and not _has_columns(line)]
    return 2 * len(framed) > len(told)


def unframed(line: str) -> str:
    """The line without its frame."""
    return _RIGHT.sub("", _LEFT.sub("", line, count=1), count=1)


def _has_columns(line: str) -> bool:
    inside = unframed(line)
    return any(bar in inside for bar in _BARS)
