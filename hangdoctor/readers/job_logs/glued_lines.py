"""Lines of two processes that a third's buffer or a shared pipe has glued into one, without a break
between.

283: 12:45:02.389 INFO band0 | layout loaded12:45:02.389 INFO band1 | layout loaded

Where nearly all lines of a file begin with a time, a second time of that form within a line begins
another one; where they are objects of JSON, an object behind the end of one. Other beginnings are
too like what a line may hold.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise

from ...text.late import late

_HEAD = late(
    r"\[?(?:\d{4}-\d\d-\d\d[ T])?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?|\[?\d{4}-\d\d-\d\dT[\d:.,]{6,20}Z?\]?"
)
_WORDS_BEHIND = late(r"\[?[\d:.,T Z-]{8,40}\]?\s{1,4}[A-Za-z\[(]")
_DIGIT = late(r"\d")
_OBJECT = r"(?<=\})\{(?=\")"
_MOSTLY = 0.6  # of the lines
_SHORTEST = 6  # digits: of fewer, two are soon alike


class GluedLines:
    """Knows the beginning that most lines of a file have."""

    def __init__(self, sample: Iterable[str]) -> None:
        lines = list(sample)
        heads = Counter(head for line in lines if (head := _shape(line)))
        shape, count = heads.most_common(1)[0] if heads else ("", 0)
        if sum(line.startswith('{"') for line in lines) > _MOSTLY * len(lines):
            shape, count = _OBJECT, len(lines)
        self._head = re.compile(shape) if shape and count > _MOSTLY * len(lines) else None

    def parted(self, line: str) -> Iterator[str]:
        """The lines that are in it, mostly one."""
        if self._head is None:
            yield line
            return
        begins = [0, *(m.start() for m in self._head.finditer(line) if _is_within(line, m.start()))]
        for begin, end in pairwise([*begins, len(line)]):
            yield line[begin:end]


def _is_within(line: str, at: int) -> bool:
    """Whether a word or a bracket's end stands directly before it; or a number, and then it is a
    whole line's beginning, with words behind it.
    """
    before = line[at - 1] if at > 0 else " "
    if before.isdigit():
        return _WORDS_BEHIND.match(line, at) is not None
    return before.isalpha() or before in ")]}.!"


def _shape(line: str) -> str:
    """The form of a line's beginning, as a pattern; "" where it begins with no time."""
    head = _HEAD.match(line)
    if head is None or len(_DIGIT.findall(head[0])) < _SHORTEST:
        return ""
    return _DIGIT.sub(r"\\d", re.escape(head[0]))
