"""Ranks written as ranges (``0-3,8``) and nodes as Slurm host lists (``r7i6n[0-3]``)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from .errors import UsageError

_TRAILING_NUMBER = re.compile(r"^(.*?)(\d+)$")
_RANGE = re.compile(r"^(\d+)(?:-(\d+))?$")


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
        UsageError: the text is no list of ranges.
    """
    return sorted({rank for first, last in parse_runs(text) for rank in range(first, last + 1)})


def parse_runs(text: str) -> Iterator[tuple[int, int]]:
    """``0-3,8`` -> ``(0, 3), (8, 8)``.

    Raises:
        UsageError: as `parse_ranks`.
    """
    for part in filter(None, (p.strip() for p in text.split(","))):
        match = _RANGE.match(part)
        if match is None:
            raise UsageError(f"'{text}' is no list of ranks", "Write ranks as ranges, for example 0-3,8,12-15.")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first > 10_000_000:
            raise UsageError(f"'{part}' is no range of ranks", "Write the smaller rank first, for example 0-3.")
        yield first, last


def format_hosts(hosts: Iterable[str]) -> str:
    """``[n1, n2, n3, login]`` -> ``login,n[1-3]``: names with a common stem and number width share brackets."""
    plain: list[str] = []
    numbered: dict[tuple[str, int], list[int]] = {}
    for host in sorted(set(hosts)):
        match = _TRAILING_NUMBER.match(host)
        if match is None or not match[1] or match[1].endswith("."):
            plain.append(host)
            continue
        # Slurm keeps leading zeros: n01 and n1 are different names, so the width is part of the key.
        width = len(match[2]) if match[2].startswith("0") else 0
        numbered.setdefault((match[1], width), []).append(int(match[2]))
    out = list(plain)
    for (stem, width), numbers in numbered.items():
        parts = [f"{a:0{width}d}" if a == b else f"{a:0{width}d}-{b:0{width}d}" for a, b in _runs(sorted(numbers))]
        out.append(stem + parts[0] if len(numbers) == 1 else f"{stem}[{','.join(parts)}]")
    return ",".join(sorted(out))


def parse_hosts(text: str) -> list[str]:
    """Expand a Slurm host list: ``r7i6n[0-1,04],login`` -> names in the order written.

    Raises:
        UsageError: brackets do not match or a range is no range.
    """
    hosts: list[str] = []
    for part in _split_outside_brackets(text):
        hosts.extend(_expand(part))
    return hosts


def _split_outside_brackets(text: str) -> Iterator[str]:
    depth, begin = 0, 0
    for i, c in enumerate(text):
        depth += (c == "[") - (c == "]")
        if c == "," and depth == 0:
            yield text[begin:i]
            begin = i + 1
    if depth:
        raise UsageError(f"'{text}' is no host list: brackets do not match")
    if text[begin:]:
        yield text[begin:]


def _expand(part: str) -> list[str]:
    match = re.search(r"\[([^\]]*)\]", part)
    if match is None:
        return [part.strip()]
    names: list[str] = []
    for piece in match[1].split(","):
        numbers = _RANGE.match(piece.strip())
        if numbers is None:
            raise UsageError(f"'{part}' is no host list: '{piece}' is no range")
        width = len(numbers[1])
        for n in range(int(numbers[1]), int(numbers[2] or numbers[1]) + 1):
            names.extend(_expand(f"{part[: match.start()]}{n:0{width}d}{part[match.end() :]}"))
    return names
