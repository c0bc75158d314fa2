"""Long lines that were broken in two: the first part is held, and joined with the lines behind it."""

from __future__ import annotations

from msgspec import Struct

from .lines_read import LinesRead
from .prefix import Said

_TORN = 3  # lines that a broken one is joined with
_INDENT = "  "  # of a line that a person broke, and no terminal


class Torn(Struct):
    """The first part of a line, and who said it."""

    text: str
    said: Said
    left: int = _TORN  # lines that it may yet be joined with


class TornLines:
    """Of one file."""

    def __init__(self, lines: LinesRead) -> None:
        self._lines = lines
        self._held: Torn | None = None

    @property
    def open(self) -> bool:
        """Whether one waits for its rest."""
        return self._held is not None

    def hold(self, said: Said) -> None:
        """A line that may have been broken."""
        self._held = Torn(said.text, said)
        self._lines.want(_TORN)

    def joined(self, said: Said) -> Torn | None:
        """The one that is held, with this line as its next part; None where the line is another speaker's."""
        torn, self._held = self._held, None
        if torn is None:
            return None
        if said.rank not in (-1, torn.said.rank):
            self.wait(torn)
            return None
        rest = said.text.lstrip() if said.text.startswith(_INDENT) else said.text
        space = " " if torn.text[-1:].isspace() else ""
        return Torn(f"{torn.text.rstrip()}{space}{rest}", torn.said, torn.left)

    def wait(self, torn: Torn) -> None:
        """One that has no end yet."""
        if torn.left > 1:
            self._held = Torn(torn.text, torn.said, torn.left - 1)
