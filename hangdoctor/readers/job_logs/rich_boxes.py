"""Tracebacks as rich draws them, which Lightning, typer and others install:

    ╭─────────────── Traceback (most recent call last) ────────────────╮
    │ /job/fit.py:12 in begin                                          │
    │                                                                  │
    │    11 │   model = made()                                         │
    │ ❱  12 │   go(model)                                              │
    ╰──────────────────────────────────────────────────────────────────╯
    ValueError: bad row

A path that is too long goes on in the next row. What else stands in the box is source, and no line of the
program's output.
"""

from __future__ import annotations

from msgspec import Struct

from ...model.frame import Frame
from ...text.late import late

_ROW = late(r"\s{0,40}│(.*)$")
_EDGE = late(r"\s{0,40}[│ ]{0,4}[╭╰][─ ]")
_SOURCE = late(r"\s{0,8}(?P<here>❱?)\s{0,8}\d{1,6} │(?P<code>.*)$")
_FRAME = late(r"(?P<file>\S.{0,400}?):(?P<line>\d{1,6}) in (?P<name>\S.{0,200})$")
_BEGINS = late(r"(?:/|~|[A-Za-z]:\\|\.\.?/|<)\S")
_WITHIN = 40  # rows after one that only such a box has
_PARTS = 4  # rows of one path
_SOURCE_KEPT = 160  # characters


class Row(Struct, frozen=True):
    """A row of a box: the frame that it names, or the line of source that the frame stands at."""

    frame: Frame | None = None
    code: str = ""


class RichBoxes:
    """Of one speaker."""

    def __init__(self) -> None:
        self._left = 0  # rows that may still belong to the box that is read
        self._path: list[str] = []

    def feed(self, text: str) -> Row | None:
        """The next line; None where it is no row of such a box."""
        if "│" not in text and "─" not in text:
            self._left, self._path = 0, []
            return None
        if _EDGE.match(text) is not None and (self._left or "Traceback" in text):
            ends = text.lstrip().startswith("╰")
            self._left, self._path = 0 if ends else _WITHIN, []
            return None if "Traceback" in text else Row()
        match = _ROW.match(text)
        if match is None:
            return None
        inside = match[1].rstrip().removesuffix("│").rstrip()
        if inside and not inside.startswith(" "):
            return None
        return self._inside(inside[1:])

    def _inside(self, text: str) -> Row | None:
        source = _SOURCE.match(text)
        if source is not None:
            if not (source["here"] or self._left):
                return None  # of some table
            self._left, self._path = _WITHIN, []
            code = source["code"].replace("│", " ").strip() if source["here"] else ""
            return Row(code=code[:_SOURCE_KEPT])
        frame = self._frame(text.strip())
        if frame is not None:
            self._left = _WITHIN
            return Row(frame)
        if self._left <= 0:
            return None
        self._left -= 1
        return Row()

    def _frame(self, text: str) -> Frame | None:
        """The frame that this row names, alone or with those before it."""
        if _BEGINS.match(text) is not None:
            self._path = []
        whole = "".join([*self._path, text])
        match = _FRAME.match(whole)
        known = bool(self._path) or self._left > 0 or ".py:" in whole
        if match is not None and known and _BEGINS.match(whole) is not None:
            self._path = []
            return Frame(match["name"].strip(), match["file"], int(match["line"]))
        begins = not self._path and _BEGINS.match(text) is not None
        if text and (begins or self._path) and len(self._path) < _PARTS:
            self._path.append(text)
        elif not text:
            self._path = []
        return None
