"""What each rank printed of its own before the hang, and in which of these lines one rank is alone.

A person who reads a long log compares the last lines of the ranks. So does this: a rank whose last
line is another one than that of all others, or has another value where they always had the same, or
that said that it left something out. It is a lead, and no more: what a program prints need not be
what made it wait.

The lines are read a second time, since most of a long log is searched and not read.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from ...errors import BadInput
from ...model.log_facts import (
    AnyFact,
    Cancelled,
    Ended,
    GlooTimeout,
    Guarded,
    KilledByLauncher,
    Mismatch,
    OwnLine,
    PeerClosed,
    PythonError,
    Signalled,
    TimedOut,
    Unanswered,
)
from ...text import redaction
from ...text.late import late
from ...text.plain import readable
from . import source
from .glued_lines import GluedLines
from .habits import ANSI, habits
from .prefix import Said, strip
from .speaker_labels import Label, learn
from .stamps import Clock

LIMITS = TimedOut | GlooTimeout | Guarded | Unanswered | PeerClosed
_ENDS = LIMITS | Mismatch | Ended | KilledByLauncher | Signalled | Cancelled
_BYTES = 16 << 20  # of all files, from their ends
_LINES = 40_000  # the same
_PIECES = 5  # last ones of a line that was written over and over
_SAMPLE = 500  # lines that show a file's prefixes
_LONG = 400  # characters of a line
_KEPT = 120  # the same, of what is compared
_FEWEST = 3  # ranks that print: of two none is odd
_SHAPES = 5000  # different lines
_RECENT = 8  # last lines of a rank, of which one has to be of a kind that others print
_NEAR = 0.2  # of the larger of two numbers
_AGREED = 10  # times that a value was the same on all, before one has another
_NUMBER = late(r"0x[0-9a-f]+|\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_CLOCK = late(r"\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?|\b\d{1,4}[-/]\d\d?[-/]\d{1,4}\b")
_STAMPED = late(  # of a line of JSON, or of words with values
    r'^\{"(?:ts?|time|timestamp|@timestamp|asctime)": ?[^,]{1,40}, ?|^(?:ts?|time|timestamp)=\S{1,40} '
)
_VALUE = late(r"=[^\s,;]+")
_WORDS = late(r"[\w.+/-]+")
# Of a stack, of a library's warning, of the interpreter's end
_NOT_OWN = late(
    r"\s|\[c10d\] |SIGTERM caught|Traceback \(|File \"|[\w.]*(?:Error|Exception|Warning|Interrupt)\b|During handling of |The above exception |\^+$"
    r"|terminate called|what\(\): |Extension modules|Fatal Python error|Current thread 0x|Thread 0x|\S+\.py:\d+: \w*Warning|work\.wait\(\)"
)
_LEFT_OUT = late(r"\b(?:skip(?:s|ped|ping)?|drop(?:s|ped|ping)?|discard(?:s|ed|ing)?)\b", re.I)
_NO_LEFT_OUT = late(  # none was, or it is a wait that failed
    r"\b(?:skipped|dropped)[\w ]{0,20}[:=] ?0\b|RuntimeError|DistBackend|[Tt]imed? ?out|[Cc]onnection|\bpeer\b"
)
_NOT_FINITE = late(r"(?<![\w./])(?:inf(?:inity)?|nan|Inf(?:inity)?|NaN)(?![\w./])")
_OF_ROUND = late(
    r"\b(?:batch|step|iter\w*|sample|example|update|micro\w*|record|item|utterance|row|chunk|group)",
    re.I,
)


Lead = Literal["", "last", "value", "left out", "not finite"]


class Asked(Struct):
    """One log file: its path, and what its name tells of its lines."""

    path: Path
    of_file: Said


class _Line(Struct):
    speaker: str
    said: Said
    file: int
    number: int
    text: str  # as it was printed, without what a launcher put before it
    alike: str  # the same for all who print it: without the speaker's own number
    shape: str  # without numbers and values

    def fact(self, lead: Lead = "", usual: str = "") -> OwnLine:
        """As a fact, with who says it."""
        said = self.said
        return OwnLine(
            file=self.file,
            line=self.number,
            rank=said.rank,
            local=said.local,
            task=said.task,
            node=said.node,
            pid=said.pid,
            worker=said.worker,
            says=_kept(self.text),
            lead=lead,
            usual=_kept(usual),
        )


def own_lines(
    files: Sequence[Asked], facts: Iterable[AnyFact], restarts: Sequence[tuple[int, int]] = ()
) -> list[OwnLine]:
    """The last line of each who printed any, and those in which one is alone; `restarts`: files and
    lines at which the job was started again.
    """
    begun: dict[int, int] = {}
    for file, number in restarts:
        begun[file] = max(number, begun.get(file, 0))
    later = [fact for fact in facts if fact.line > begun.get(fact.file, 0)]
    ends, share = _ends(later), max(1, len(files))
    by_speaker: dict[str, list[_Line]] = {}
    for index, asked in enumerate(files):
        for line in _of_file(index, asked, ends.get(index, 0), share):
            by_speaker.setdefault(line.speaker, []).append(line)
    if len(by_speaker) < 2:
        return []
    of_ranks = {speaker: lines for speaker, lines in by_speaker.items() if speaker[:4] != "file"}
    by_speaker = of_ranks or by_speaker
    last = [_last(lines) for lines in by_speaker.values()]
    return [*last, *_odd(by_speaker)] if len(by_speaker) >= _FEWEST else last


def _last(lines: Sequence[_Line]) -> OwnLine:
    """The last of one speaker's lines."""
    fact = lines[-1].fact()
    fact.again = sum(line.shape == lines[-1].shape for line in lines[:-1])
    return fact


def _ends(facts: Iterable[AnyFact]) -> dict[int, int]:
    """The line of each file at which it tells of the last attempt's end first."""
    ends: dict[int, int] = {}
    told = list(facts)
    last = max((fact.attempt for fact in told), default=0)
    for fact in told:
        if fact.attempt < last:
            continue
        error = isinstance(fact, PythonError) and not (fact.survived or fact.logged or fact.inside)
        if error or isinstance(fact, _ENDS):
            ends[fact.file] = min(ends.get(fact.file, fact.line), fact.line)
    return ends


# ---------------------------------------------------------------------- lines


def _of_file(index: int, asked: Asked, end: int, share: int) -> Iterator[_Line]:
    read = list(_pieces(asked.path, end, share))
    glued = GluedLines(text for _, text in read[:_SAMPLE])
    pieces = [(number, part) for number, text in read for part in glued.parted(text)]
    usual, clock = habits(text for _, text in pieces[:_SAMPLE]), Clock()
    label = learn([text for _, text in pieces])
    alone = f"file {index}" if share >= _FEWEST else ""
    in_stack: set[str] = set()
    for number, piece in pieces:
        said = strip(piece[:_LONG], asked.of_file, usual, clock)
        said = _with_label(said, label, piece)
        speaker, own = _speaker(said) or alone, said.text.rstrip()
        if own.startswith("Traceback ("):
            in_stack.add(speaker)
        elif own[:1] and not own[0].isspace():
            in_stack.discard(speaker)
        if not speaker or speaker in in_stack or not own.strip() or _NOT_OWN.match(own.lstrip()):
            continue
        text = own.strip()
        alike = _CLOCK.sub("", label.without(text) if label is not None else text)
        yield _Line(
            speaker=speaker,
            said=said,
            file=index,
            number=number,
            text=text,
            alike=alike,
            shape=_shape(alike),
        )


def _pieces(path: Path, end: int, share: int) -> Iterator[tuple[int, str]]:
    """The last lines before `end` (0: all), with their numbers; of one that was written over its
    last states.
    """
    held: deque[tuple[int, bytes]] = deque()
    size, number = 0, 1
    try:
        with source.opened(path) as stream:
            for block in source.blocks(stream):
                held.append((number, block.data))
                size, number = size + len(block.data), number + block.data.count(b"\n")
                while size > _BYTES // share and len(held) > 1:
                    size -= len(held.popleft()[1])
                if 0 < end <= number:
                    break
    except (OSError, BadInput):
        return
    lines = (
        (first + at, line)
        for first, data in held
        for at, line in enumerate(data.removesuffix(b"\n").split(b"\n"))
    )
    before = (one for one in lines if not end or one[0] < end)
    for at, line in deque(before, maxlen=max(200, _LINES // share)):
        for piece in line.decode("utf-8", "replace").split("\r")[-_PIECES:]:
            text = ANSI.sub("", piece)
            if text.strip():
                yield at, text


def _with_label(said: Said, label: Label | None, piece: str) -> Said:
    """The rank by the program's own word for it, where no launcher has told it."""
    if said.rank >= 0 or label is None:
        return said
    return msgspec.structs.replace(said, rank=label.of(piece))


def _speaker(said: Said) -> str:
    """Who it is; "" where that is not known."""
    if said.rank >= 0:
        return f"rank {said.rank}"
    if said.local >= 0:
        return f"local {said.node} {said.local}"
    return f"task {said.task}" if said.task >= 0 else ""


def _shape(text: str) -> str:
    return _NUMBER.sub("#", _VALUE.sub("=#", text))[:_KEPT]


def _kept(text: str) -> str:
    return readable(
        redaction.text(_STAMPED.sub(lambda m: "{" if m[0][0] == "{" else "", text)[:_KEPT])
    )


# ---------------------------------------------------------------------- who is alone


def _odd(by_speaker: dict[str, list[_Line]]) -> list[OwnLine]:
    """The leads, the most telling first."""
    printed: dict[str, Counter[str]] = {}
    for speaker, lines in by_speaker.items():
        for line in lines:
            if line.shape in printed or len(printed) < _SHAPES:
                printed.setdefault(line.shape, Counter())[speaker] += 1
    ways = (_other_value, _left_out, _not_finite, _other_last)
    leads = [way(by_speaker, printed) for way in ways]
    return [lead for lead in leads if lead is not None]


def _other_last(
    by_speaker: dict[str, list[_Line]], printed: dict[str, Counter[str]]
) -> OwnLine | None:
    """The only one whose last line has another shape than that of all others, or counts less or
    more in it.
    """
    last: dict[str, _Line] = {}
    for speaker, lines in by_speaker.items():
        at = next((n for n, one in enumerate(lines[::-1]) if not _is_habit(printed, one)), _RECENT)
        if at < _RECENT:
            last[speaker] = lines[-1 - at]
    shapes = Counter(line.shape for line in last.values())
    if len(last) < max(_FEWEST, len(by_speaker) - 1) or not shapes:
        return None
    usual, times = shapes.most_common(1)[0]
    example = next(line for line in last.values() if line.shape == usual)
    if times == len(last) - 1:
        odd = next(line for line in last.values() if line.shape != usual)
        return odd.fact("last", example.text)
    if times < len(last):
        return None
    return _other_count(list(last.values()))


def _is_habit(printed: dict[str, Counter[str]], line: _Line) -> bool:
    """Whether its speaker alone prints such lines, and more than once."""
    by = printed.get(line.shape)
    return by is None or (len(by) == 1 and by[line.speaker] > 1)


def _other_count(last: Sequence[_Line]) -> OwnLine | None:
    """Of last lines of one shape the only one in which the first number that differs is its own."""
    rows = [_NUMBER.findall(line.alike) for line in last]
    for column in range(min(map(len, rows))):
        counts = Counter(row[column] for row in rows).most_common()
        measured = column > 0 and len(counts) > 1 and _are_near(counts[0][0], counts[1][0])
        if len(counts) == 2 and counts[1][1] == 1 and not measured:
            at = next(n for n, row in enumerate(rows) if row[column] == counts[1][0])
            other = last[0 if at else 1]
            return last[at].fact("last", other.text)
        if len(counts) > 1:
            return None
    return None


def _other_value(
    by_speaker: dict[str, list[_Line]], printed: dict[str, Counter[str]]
) -> OwnLine | None:
    """The last line in which one alone has another value, after many in which all had the same."""
    found: OwnLine | None = None
    for shape, by in printed.items():
        if len(by) < max(_FEWEST, len(by_speaker) - 1):
            continue
        rows = [[one for one in by_speaker[s] if one.shape == shape] for s in by]
        lead = _in_columns(rows)
        if lead is not None and (found is None or lead.line > found.line):
            found = lead
    return found


def _in_columns(rows: Sequence[Sequence[_Line]]) -> OwnLine | None:
    """Of lines of one shape, the n-th of each beside the n-th of all others."""
    agreed: Counter[int] = Counter()
    last = min(map(len, rows)) - 1
    for turn in range(last + 1):
        words = [_WORDS.findall(row[turn].alike) for row in rows]
        counter = -1  # the first number that all have: of another turn, there is nothing to compare
        for column in range(min(map(len, words))):
            counts = Counter(each[column] for each in words).most_common()
            if len(counts) == 1:
                agreed[column] += 1
                counter = column if counter < 0 and _NUMBER.search(counts[0][0]) else counter
                continue
            always = agreed[column] == turn >= _AGREED
            if always and counter < 0 and _NUMBER.search(counts[0][0]):
                return None
            if len(counts) != 2 or counts[1][1] > 1 or _are_near(counts[0][0], counts[1][0]):
                continue
            at = next(n for n, each in enumerate(words) if each[column] == counts[1][0])
            if always or (turn == last and _is_word_apart(rows, at, counts[1][0])):
                other = rows[0 if at else 1][turn]
                return rows[at][turn].fact("value", other.text)
    return None


def _are_near(one: str, other: str) -> bool:
    """Whether both are measured, it seems: a time, a size, a temperature."""
    try:
        a, b = float(one), float(other)
    except ValueError:
        return False
    return abs(a - b) <= _NEAR * max(abs(a), abs(b))


def _is_word_apart(rows: Sequence[Sequence[_Line]], at: int, word: str) -> bool:
    """Whether a word alone, and no number, of one of many is enough to know it by; rank 0 mostly
    has a part of its own.
    """
    spelled = not any(c.isdigit() for c in word) and len(word) > 2
    return spelled and len(rows) > _FEWEST and rows[at][-1].said.rank > 0


def _left_out(
    by_speaker: dict[str, list[_Line]], printed: dict[str, Counter[str]]
) -> OwnLine | None:
    """The line of the only one who said, in words that no other one used, that it left out a part
    of the work.
    """
    said: dict[str, _Line] = {}
    for speaker, lines in by_speaker.items():
        for line in lines:
            by = printed.get(line.shape)
            alone = by is not None and len(by) == 1 and _NO_LEFT_OUT.search(line.text) is None
            if alone and _LEFT_OUT.search(line.text) and _OF_ROUND.search(line.text):
                said.setdefault(speaker, line)
    return next(iter(said.values())).fact("left out") if len(said) == 1 else None


def _not_finite(
    by_speaker: dict[str, list[_Line]], printed: dict[str, Counter[str]]
) -> OwnLine | None:
    """The first line with a number that is not finite, of the only one who printed any: what is
    reduced over all ranks is so on all of them. Others printed such lines with finite numbers; a
    line that speaks of NaN in words is none.
    """

    def finite(line: _Line) -> Counter[str]:
        return printed.get(_shape(_NOT_FINITE.sub("1", line.alike)), Counter())

    def is_number(line: _Line) -> bool:
        return _NOT_FINITE.search(line.text) is not None and bool(finite(line))

    found = (next(filter(is_number, lines), None) for lines in by_speaker.values())
    first = [line for line in found if line is not None]
    alone = len(first) == 1 and bool(finite(first[0]).keys() - {first[0].speaker})
    return first[0].fact("not finite") if alone else None
