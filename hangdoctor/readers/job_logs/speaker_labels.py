"""The word and number by which a program's own lines say who prints them: ``worker2``, ``cls-r0``,
``ranker[3]``.

No launcher put it there, so it is learned from the lines themselves. Of all words with a number
behind them it is the one whose numbers go from 0 on, and each of which comes again all along: a
step's do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from msgspec import Struct

from ...text.late import late

_NAMES = "actor|client|device|gpu|host|learner|member|node|pe|peer|proc|process|rank|replica|shard|site|stage|trainer|worker"
# ``worker2``, ``r2``, ``cls-r0``, ``[3]``, ``process 1``, ``voice 2/3``, ``"proc": 1``; a bare number where a colon follows it: ``2: step 8``
_WORD = late(
    rf"(?<![\w.])(?:((?i:{_NAMES}) |[A-Za-z]\w{{1,20}} (?=\d{{1,5}}/\d)|\"(?i:\w{{0,8}}_?rank|{_NAMES})\": ?|[A-Za-z_][\w.-]{{0,30}}?[A-Za-z_\[(#:=-]|[\[(]|(?<!\S)[A-Za-z])"
    r"(\d{1,5})(?![\w.%]{0,20}[A-Za-z\d])(?!:\d\d:\d\d\b)|(?<!\S)(\d{1,5}):(?= ))"
)
_COLUMN = late(
    r"(?<=,)(\d{1,5})(?=,)"
)  # of lines in columns, which begin with a stamp: ``1795775496.98,5,63``
_IN_COLUMNS = late(r"\s{0,4}[\d.:T-]{8,40},")
_LOOKED_AT = 120  # characters of a line
_MOST_WORDS = 6  # of a line
_MOST_NUMBERS = 5000  # of a word: more are no processes
_OFTEN = 3  # times that each number comes
_SHARE = 0.3  # of the lines have it


class _Seen(Struct):
    first: int
    last: int
    times: int = 1


class Label(Struct, frozen=True):
    """What stands before the number."""

    word: str

    def of(self, line: str) -> int:
        """The number in a line; -1 where it has none."""
        for word, number, _ in _found(line):
            if word == self.word:
                return number
        return -1

    def without(self, text: str) -> str:
        """The text, alike for all who print it."""
        for word, _, span in _found(text):
            if word == self.word:
                return text[: span[0]] + text[span[1] :]
        return text


def learn(lines: Sequence[str]) -> Label | None:
    """The label of these lines; None where they have none."""
    words: dict[str, dict[int, _Seen]] = {}
    for at, line in enumerate(lines):
        for word, number, _ in islice(_found(line), _MOST_WORDS):
            numbers = words.setdefault(word, {})
            seen = numbers.get(number)
            if seen is not None:
                seen.last, seen.times = at, seen.times + 1
            elif len(numbers) < _MOST_NUMBERS:
                numbers[number] = _Seen(at, at)
    fitting = {
        word: total
        for word, numbers in words.items()
        if (total := _of_speakers(numbers)) >= _SHARE * len(lines)
    }
    return Label(max(fitting, key=fitting.__getitem__)) if fitting else None


def _found(line: str) -> Iterator[tuple[str, int, tuple[int, int]]]:
    """Each word with its number, and where it stands in the line."""
    if _IN_COLUMNS.match(line) is not None:
        for match in _COLUMN.finditer(line, 0, _LOOKED_AT):
            yield f"column {line.count(',', 0, match.start())}", int(match[1]), match.span()
        return
    for match in _WORD.finditer(line, 0, _LOOKED_AT):
        yield match[1] or "", int(match[2] or match[3]), match.span()


def _of_speakers(numbers: dict[int, _Seen]) -> int:
    """How many lines have one of them; 0 where they are none of processes."""
    if len(numbers) < 2 or sorted(numbers) != list(range(len(numbers))):
        return 0
    seen = numbers.values()
    span = max(s.last for s in seen) - min(s.first for s in seen) + 1
    lasting = sum(2 * (s.last - s.first) > span for s in seen)
    if min(s.times for s in seen) < _OFTEN or lasting < len(numbers) - 1:
        return 0
    return sum(s.times for s in seen)
