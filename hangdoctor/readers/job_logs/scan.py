"""The lines of one file, from its blocks to the records of each speaker, in order. What they say is for
`records_read`.
"""

from __future__ import annotations

from itertools import chain
from typing import IO

import msgspec

from ...model.log_facts import LogFile, UnreadFailure
from ...model.log_lines import Excerpt, FailureLine
from ...text.late import late
from . import source
from .collect import Facts
from .file_names import NamedFile, under_header
from .framed_lines import are_framed, unframed
from .habits import Habits, habits
from .prefix import Said, records, strip
from .records_read import RecordsRead
from .rewrapped import Rewrapped
from .rules import Rules
from .shipped import Line, Shipper, form_of
from .wrapped_lines import unwrapped

_HEARD = late(rb"\[rank(\d{1,7})\]")
_LONGEST = 20_000  # characters of a line
_PIECES = 40  # last ones of a line that was written over and over
_LEARNED = 1 << 16  # bytes at the beginning that show a file's prefixes
_CUT = late(rb"\[(?:r|ra|ran|rank\d{0,7}\]?:?)?\s*\[?")  # all that is there of a last line
# The verdict of `hangdoctor run` itself, in the job's output.
_OWN = late(r"^(?:\[?\w{0,12}\]?: ?)?hangdoctor: ")


class FileScan:
    """Turns the lines of one file into facts."""

    def __init__(self, rules: Rules, facts: Facts, index: int, of_file: Said, attempt: int) -> None:
        self._records = RecordsRead(rules, facts, index, of_file, attempt)
        self._place = self._records.kept.place
        self.heard = self._records.kept.heard
        self.tasks = self._records.kept.tasks
        self.marks = self._records.kept.marks
        self.runs = self._records.runs
        self.unread: list[UnreadFailure] = []
        self.excerpts: list[Excerpt] = []
        self.pointed: list[FailureLine] = []
        self._of_file = self._own = of_file
        self._usual = Habits()
        self._shipper = Shipper(None)
        self._rewrapped = Rewrapped()
        self._framed = False

    def run(self, name: str, stream: IO[bytes]) -> LogFile:
        """Read the stream to its end."""
        size, end = 0, b""
        for number, block in enumerate(source.blocks(stream)):
            if number == 0:
                block = source.Block(unwrapped(block.data), block.edge)
                self._learn(block.data[:_LEARNED])
            size += len(block.data)
            end = block.data.rstrip(b"\n").rpartition(b"\n")[2] or end
            self.heard.update(int(n) for n in _HEARD.findall(block.data))
            if not block.edge:
                self._of_file = self._own  # which file was shown last is not read
            self._read_block(block)
        for rest in self._shipper.rest():
            self._take_line(rest)
        lines = self._place.line
        self.unread = self._records.end(self._of_file)
        self.excerpts = self._place.excerpts.found(
            self._records.kept.index, [*self._records.kept.facts.all, *self.unread]
        )
        found = self._records.unread
        self.pointed = found.pointed.found(self._records.kept.index)
        cut = _CUT.fullmatch(end) is not None
        return LogFile(name, lines, size, found.trouble, found.trouble_line, cut)

    def _learn(self, begin: bytes) -> None:
        """What the first lines show of all: who ships them, and which prefixes they have."""
        lines = [_text(line) for line in begin.split(b"\n")]
        self._framed = are_framed(lines)
        lines = [self._bare(line) for line in lines]
        form = form_of(lines)
        sample = Shipper(form)
        self._shipper = Shipper(form)
        self._usual = habits(line.text for record in lines for line in sample.lines(record))
        self.marks.world = max(self.marks.world, self._usual.world)

    def _read_block(self, block: source.Block) -> None:
        before = self._place.line
        for line in self._records.lines.of(block):
            self._place.move(before + line.number, block.data, line.begin, not block.edge)
            for shipped in self._shipper.lines(self._bare(_text(line.data))):
                self._take_line(shipped)
        self._place.line = before + block.data.count(b"\n")

    def _bare(self, line: str) -> str:
        """The line without the frame that is drawn around all lines."""
        return unframed(line) if self._framed else line

    def _take_line(self, line: Line) -> None:
        if line.text.startswith("==> ") and (named := under_header(line.text)) is not None:
            self._show(named)
            return
        known = line.known(self._of_file)
        pieces = line.text.split("\r") if "\r" in line.text else [line.text]
        for piece in pieces[-_PIECES:]:
            before = known
            whole = self._rewrapped.lines(piece[:_LONGEST])
            for record in chain.from_iterable(map(records, whole)):
                if _OWN.match(record) is None:
                    before = self._record(record, self._behind(known, before))

    def _show(self, named: NamedFile) -> None:
        """The lines of another file come next."""
        told = {"rank": named.rank, "local": named.local, "node": named.node}
        self._of_file = msgspec.structs.replace(self._own, **told)
        if named.rank >= 0:
            self.heard.add(named.rank)

    def _behind(self, known: Said, before: Said) -> Said:
        """What is known of a record by the one before it in its line, which begins with what a launcher puts
        before each line.
        """
        if not (self._usual.hosts or self._usual.tasks):
            return known
        node = known.node or before.node
        task = known.task if known.task >= 0 else before.task
        return msgspec.structs.replace(known, node=node, task=task)

    def _record(self, text: str, known: Said) -> Said:
        """Read one record; returns who says it."""
        said = strip(text, known, self._usual, self._place.clock)
        self._records.read(said, text, self._of_file)
        return said


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
