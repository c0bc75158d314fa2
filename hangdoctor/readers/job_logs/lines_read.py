"""Which lines of a log are read: a block without any of the rules' texts is searched and not read.

Lines are read where a text was found, in the stack or table that such a line begins, and at both ends of
the file and of each block, where the last iteration is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from .source import Block

ATTENTION = 12  # lines after one that a stack or table may go on in
_TAIL = 1 << 12  # of each block: where the last iteration is looked for
_DENSE = 400  # bytes a find; where finds are closer, the block is read line by line
# What most bytes of a training's lines are: without them a block is searched in half of the time.
_BARE = b"0123456789 .,:;|/-_=[](){}<>%*#+'\"\t"


class LineRead(Struct):
    """One line; `number` from 1 in its block, `begin`: where in the block it is known to begin."""

    number: int
    begin: int
    data: bytes


class LinesRead:
    """Of one file, block after block. Who reads a line may ask for those behind it before the next."""

    def __init__(self, broad: Sequence[bytes]) -> None:
        self._broad = broad
        self._bare = [(text, text.translate(None, _BARE)) for text in broad]
        self._wanted = 0

    def want(self, lines: int) -> None:
        """Read so many of the next lines, whatever they hold."""
        self._wanted = max(self._wanted, lines)

    def of(self, block: Block) -> Iterator[LineRead]:
        """The lines of a block that are read, in order."""
        data = block.data
        if block.edge:
            begin = 0
            for number, line in enumerate(data.split(b"\n"), start=1):
                yield LineRead(number, begin, line)
                begin += len(line) + 1
            return
        bare = data.translate(None, _BARE)
        there = [text for text, letters in self._bare if letters in bare]
        finds = sorted({at for text in there for at in _finds(data, text)})
        if len(finds) * _DENSE > len(data):
            yield from self._dense(data)
            return
        number, counted = 1, 0
        for begin, end in self._around(data, finds):
            number += data.count(b"\n", counted, begin)
            counted = begin
            yield LineRead(number, begin, data[begin:end])

    def _around(self, data: bytes, finds: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Beginning and end of the lines with a find, of those that are wanted behind them, and of the last."""
        tail = data.rfind(b"\n", 0, max(0, len(data) - _TAIL)) + 1
        at = 0
        for find in [*finds, tail]:
            while self._wanted > 0 and at < find:
                end = _line_end(data, at)
                self._wanted -= 1
                yield at, end
                at = end + 1
            if find < at:
                continue
            begin = data.rfind(b"\n", 0, find) + 1
            end = _line_end(data, begin)
            yield begin, end
            at = end + 1
        while at < len(data):
            end = _line_end(data, at)
            yield at, end
            at = end + 1

    def _dense(self, data: bytes) -> Iterator[LineRead]:
        """Lines with a find, and those that are wanted behind them."""
        begin = 0
        for number, line in enumerate(data.split(b"\n"), start=1):
            if self._wanted > 0 or any(text in line for text in self._broad):
                self._wanted -= 1
                yield LineRead(number, begin, line)
            begin += len(line) + 1


def _finds(data: bytes, text: bytes) -> Iterator[int]:
    at = data.find(text)
    while at >= 0:
        yield at
        at = data.find(text, at + len(text))


def _line_end(data: bytes, begin: int) -> int:
    end = data.find(b"\n", begin)
    return end if end >= 0 else len(data)
