"""What the lines below an error or an end tell of it, by the tool that prints them: its stack, its host and process,
its reason.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...model.log_facts import AnyFact
from .beneath import Beneath
from .crash_places import CrashPlaces, Found
from .lines_read import ATTENTION, LinesRead
from .mpich_errors import MOST, MpichErrors
from .named_below import NamedBelow
from .npu_tails import NpuTails
from .prefix import Said
from .tables_read import TablesRead

_STACK = 16  # lines below an error in which the stack of its runtime may begin


class LinesBelow:
    """Of one file. Those that may tell something are read, whatever they hold."""

    def __init__(
        self, tables: TablesRead, beneath: Beneath, lines: LinesRead, of_file: Said
    ) -> None:
        self._tables, self._beneath, self._lines = tables, beneath, lines
        self._places = CrashPlaces()
        self._named = NamedBelow()
        self._mpich = MpichErrors()
        self._npu = NpuTails(of_file)
        self._speaks = of_file  # who speaks in the line that is read, by its prefix

    def feed(self, said: Said, line: int) -> Iterator[Found]:
        """The next line; the failures that only the stack of a runtime shows."""
        self._speaks = said
        yield from self._places.feed(said, line)
        if self._places.reads:
            self._lines.want(1)
        self._named.feed(said)
        self._mpich.feed(said.text)
        self._npu.feed(said, line)

    def begin(self, kept: AnyFact) -> None:
        """A fact of the line that was fed last: the next ones may tell where its process was."""
        self._npu.keep(kept, self._speaks)
        self._tables.mpi_stacks.hold(kept)
        stack = self._places.begin(kept, self._speaks)
        host = self._named.begin(kept, self._speaks)
        if stack or host:
            self._lines.want(_STACK)

    def begin_error(self, kept: AnyFact, said: Said) -> None:
        """An error, by its own words: the next lines may tell its reason, or which process it is about."""
        if self._beneath.name(kept):
            self._lines.want(ATTENTION)
        if self._mpich.begin(kept) or self._tables.boxes.begin(kept, said):
            self._lines.want(MOST)

    def rest(self) -> list[Found]:
        """The failures of stacks that go on to the end of the file."""
        return self._places.rest()
