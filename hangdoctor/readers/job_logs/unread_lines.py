"""The lines that no rule knows, as far as they may tell of a failure: the first that speaks of trouble, the words
of each speaker's failure, and the sentence right above an end.
"""

from __future__ import annotations

from ...model.log_facts import AnyFact, Ended, UnreadFailure
from . import unread
from .excerpts import may_be_shown
from .place_in_file import PlaceInFile
from .pointed_lines import PointedLines
from .prefix import Said
from .unread_failures import UnreadFailures
from .words_above import WordsAbove


class UnreadLines:
    """Of one file."""

    def __init__(self) -> None:
        self.trouble, self.trouble_line = "", 0
        self.pointed = PointedLines()
        self._failures = UnreadFailures()
        self._above = WordsAbove()

    def look(self, text: str, line: int) -> None:
        """A line of which nothing is known."""
        if not self.trouble and unread.speaks_of_trouble(text):
            self.trouble, self.trouble_line = unread.kept(text), line

    def feed(self, said: Said, text: str, place: PlaceInFile, attempt: int) -> None:
        """A line whose words no rule knows."""
        speaks = self._failures.feed(said, text, place.line, place.at, attempt)
        if speaks:
            place.excerpts.take(place.line)
        self.pointed.unread(place.line, text, speaks)
        self._above.feed(said, place.line, place.at, attempt)

    def known(self) -> None:
        """A line whose words a rule knows."""
        self._failures.known()

    def went_on(self) -> None:
        """The job made progress."""
        self.trouble = ""
        self.pointed.went_on()
        self._failures.went_on()

    def traceback(self, line: int, pid: int) -> None:
        """A line of a traceback of process `pid`."""
        self._failures.traceback(line, pid)

    def cut(self, line: int) -> None:
        """The traceback that begins in this line lacks its last one."""
        self._failures.cut(line)

    def end(self, kept: AnyFact) -> None:
        """A fact, which may be a rank's own end."""
        if may_be_shown(kept) and not isinstance(kept, Ended):
            self.pointed.known(kept.line, kept.says)
        self._above.end(kept)

    def found(self, index: int) -> list[UnreadFailure]:
        """The failures, in the order of their lines."""
        found = self._above.added_to(self._failures.found())
        for failure in found:
            failure.file = index
        return found
