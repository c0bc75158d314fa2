"""Ranks written as ranges (``0-3,8``) and nodes as Slurm host lists (``r7i6n[0-3]``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from math import prod

from ..errors import UsageError
from .late import late

MAX_RANKS = 2_000_000  # of one job: what claims more is damaged, or means harm
MAX_MEMBERS = 2 * MAX_RANKS  # of all groups in one file, written out
MAX_HOSTS = 100_000
_MAX_TEXT = 16 << 20  # characters of the names that one list of hosts stands for
_MAX_BRACKETS = 4 * MAX_HOSTS
_DIGITS = "0123456789"
_NUMBER_DIGITS = 18  # what fits 64 bits; Python itself refuses to read more than 4,300
_RANGE = late(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_BRACKET = late(r"([][])")
_MEMBERS = late(r"([0-9]{1,18})(?:-([0-9]{1,18})(?::([0-9]{1,18}))?)?")


def number_in(text: str, otherwise: int = -1) -> int:
    """The number that `text` is: plain digits that fit 64 bits, else `otherwise`.

    `str.isdigit` and `str.isdecimal` say yes to texts that `int` refuses, or that no program of
    ours has written.
    """
    known = len(text) <= _NUMBER_DIGITS and text.isascii() and text.isdigit()
    return int(text) if known else otherwise


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Yield (first, last) of each run of consecutive numbers; `numbers` is sorted and unique."""
    start = previous = None
    for n in numbers:
        if previous is not None and n == previous + 1:
            previous = n
            continue
        if start is not None and previous is not None:
            yield start, previous
        start = previous = n
    if start is not None and previous is not None:
        yield start, previous


def format_ranks(ranks: Iterable[int]) -> str:
    """``[0, 1, 2, 3, 8]`` -> ``0-3,8``; nothing -> an empty string."""
    runs = _runs(sorted(set(ranks)))
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def parse_ranks(text: str) -> list[int]:
    """``0-3,8`` -> ``[0, 1, 2, 3, 8]``.

    Raises:
        UsageError: the text is not a list of ranges, or has more ranks than a job can have.
    """
    # The same part again, a million times, is read once.
    runs = list(_runs_in(dict.fromkeys(text.split(",")), text))
    if sum(last - first + 1 for first, last in runs) > MAX_RANKS:
        raise UsageError(f"'{_short(text)}' has more than {MAX_RANKS:,} ranks", "Write fewer.")
    return sorted({rank for first, last in runs for rank in range(first, last + 1)})


def parse_runs(text: str) -> Iterator[tuple[int, int]]:
    """``0-3,8`` -> ``(0, 3), (8, 8)``.

    Raises:
        UsageError: the text is not a list of ranges.
    """
    return _runs_in(text.split(","), text)


def _runs_in(parts: Iterable[str], text: str) -> Iterator[tuple[int, int]]:
    for part in filter(None, map(str.strip, parts)):
        if (number := number_in(part)) >= 0:
            yield number, number
            continue
        match = _RANGE.fullmatch(part)
        if match is None:
            raise UsageError(
                f"'{_short(text)}' is not a list of ranks",
                "Write ranks as ranges, for example 0-3,8,12-15.",
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first > 10_000_000:
            raise UsageError(
                f"'{part}' is not a range of ranks",
                "Write the smaller rank first, for example 0-3.",
            )
        yield first, last


def member_runs(text: str) -> list[range] | None:
    """Members of a group as a black box has them: ``0-3,8-20:4`` -> ``[range(0, 4), range(8, 21,
    4)]``.

    None for what is no such text, or names a rank that no job has.
    """
    found: list[range] = []
    for part in filter(None, text.split(",")):
        match = _MEMBERS.fullmatch(part)
        if match is None:
            return None
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if step == 0 or max(first, last) >= MAX_RANKS:
            return None
        found.append(range(first, last + 1, step))
    return found


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."


def format_hosts(hosts: Iterable[str]) -> str:
    """``[n1, n2, n3, login]`` -> ``login,n[1-3]``: names with a common stem and number width share
    brackets.
    """
    plain: list[str] = []
    numbers: dict[tuple[str, int], list[int]] = {}  # by stem and number of digits
    padded: set[tuple[str, int]] = set()
    for host in set(hosts):
        stem = host.rstrip(_DIGITS)
        width = len(host) - len(stem)
        if not 0 < width <= _NUMBER_DIGITS or not stem or stem[-1] == ".":
            plain.append(host)
            continue
        key = stem, width
        numbers.setdefault(key, []).append(int(host[-width:]))
        if width > 1 and host[-width] == "0":
            padded.add(key)
    return ",".join(sorted([*plain, *_in_brackets(numbers, padded)]))


def _in_brackets(
    numbers: dict[tuple[str, int], list[int]], padded: set[tuple[str, int]]
) -> Iterator[str]:
    """Slurm keeps leading zeros: n01 and n1 are two names. Where there is n08, n10 joins it."""
    grouped: dict[tuple[str, int], list[int]] = {}
    for (stem, width), found in numbers.items():
        written = width if (stem, width) in padded else 0
        grouped.setdefault((stem, written), []).extend(found)
    for (stem, width), found in grouped.items():
        parts = [
            f"{a:0{width}d}" if a == b else f"{a:0{width}d}-{b:0{width}d}"
            for a, b in _runs(sorted(found))
        ]
        yield stem + parts[0] if len(found) == 1 else f"{stem}[{','.join(parts)}]"


def parse_hosts(text: str) -> list[str]:
    """Expand a Slurm host list: ``r7i6n[0-1,04],login`` -> names in the order written.

    Raises:
        UsageError: brackets do not match, a range is not valid, or it has more than
        `MAX_HOSTS` names.
    """
    hosts: list[str] = []
    room = _MAX_TEXT
    if text.count("[") > _MAX_BRACKETS:
        raise UsageError(f"'{_short(text)}' is not a host list: it has too many brackets")
    for part in filter(str.strip, _split_outside_brackets(text)):
        pieces = list(_pieces(part)) if "[" in part else []
        count = prod(sum(len(run) for run, _ in runs) for _, runs in pieces)
        room -= count * len(part)
        if len(hosts) + count > MAX_HOSTS or room < 0:
            raise UsageError(
                f"'{_short(text)}' has more than {MAX_HOSTS:,} hosts",
                "Write fewer.",
            )
        if pieces:
            hosts += _expand(pieces)
        else:
            hosts.append(part.strip())
    return hosts


def _split_outside_brackets(text: str) -> Iterator[str]:
    """What is between the commas that are in no brackets; most of the empty ones are left out."""
    depth, at = 0, 0
    held: list[str] = []  # of the part that is not over
    for match in _BRACKET.finditer(text):
        if depth == 0:
            *over, begun = text[at : match.start()].split(",")
            if over:
                yield "".join([*held, over[0]])
                yield from filter(None, over[1:])
                held = []
            held.append(begun)
            at = match.start()
        depth += 1 if match[0] == "[" else -1
        if depth == 0:
            held.append(text[at : match.end()])
            at = match.end()
    if depth:
        raise UsageError(f"'{_short(text)}' is not a host list: brackets do not match")
    first, *rest = text[at:].split(",")
    yield "".join([*held, first])
    yield from filter(None, rest)


_Runs = list[tuple[range, int]]  # numbers, and the width that they are written with
_ONE: _Runs = [(range(1), -1)]  # a piece without brackets: one name, and no number behind it


def _pieces(part: str) -> Iterator[tuple[str, _Runs]]:
    """``r[1-2]n[03]x`` -> ``("r", 1 to 2), ("n", 03), ("x", nothing)``."""
    at = 0
    while (begin := part.find("[", at)) >= 0 and (end := part.find("]", begin)) >= 0:
        yield part[at:begin], [_run(piece, part) for piece in part[begin + 1 : end].split(",")]
        at = end + 1
    yield part[at:], _ONE


def _run(piece: str, part: str) -> tuple[range, int]:
    match = _RANGE.fullmatch(piece.strip())
    if match is None:
        raise UsageError(f"'{_short(part)}' is not a host list: '{_short(piece)}' is not a range")
    run = range(int(match[1]), int(match[2] or match[1]) + 1)
    if len(run) > MAX_HOSTS:
        raise UsageError(
            f"'{_short(part)}' has more than {MAX_HOSTS:,} hosts",
            "Write fewer.",
        )
    return run, len(match[1])


def _expand(pieces: list[tuple[str, _Runs]]) -> Iterator[str]:
    choices = [
        [stem if width < 0 else f"{stem}{n:0{width}d}" for run, width in runs for n in run]
        for stem, runs in pieces
    ]
    return ("".join(words).strip() for words in product(*choices))
