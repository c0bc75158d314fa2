"""What numbers the processes of a job that have no variable for it: an argument or a variable of
their own in which each differs, as in `for i in 0 1 2 3; do python train.py --process_id $i &`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..text.late import late
from ..text.ranges import MAX_RANKS, number_in

# Names that say "rank"; any other argument counts only where it goes from 0 to the last.
_RANK = late(
    r"(?:^|[-_])(?:rank|proc(?:ess)?[-_]?(?:id|index|num(?:ber)?)|task[-_]?(?:id|index))$", re.I
)
_OTHER = late(r"local|device|gpu|worker|node|host|port|seed|thread|core|cpu", re.I)
_NAME = late(r"-{1,2}([A-Za-z][\w.-]*)")

Words = Sequence[str]


def numbers(arguments: Sequence[Words], environs: Sequence[dict[str, str]]) -> list[int] | None:
    """The rank of each process; None where nothing, or not everything, says one and the same.

    Names that say "rank" are believed first; then any place of the command line.
    """
    named, unnamed = [], []
    for name, values in _columns(arguments, environs):
        found = [number_in(value) for value in values]
        if min(found) < 0 or max(found) >= MAX_RANKS or len(set(found)) < len(found):
            continue
        if _RANK.search(name) and not _OTHER.search(name):
            named.append(found)
        elif sorted(found) == list(range(len(found))) and not _OTHER.search(name):
            unnamed.append(found)
    return _agreed(named) or (_agreed(unnamed) if not named else None)


def differ_in_number(one: Words, other: Words) -> bool:
    """Whether two command lines are the same but for one number, bare or behind a ``name=``."""
    if len(one) != len(other):
        return False
    apart = [pair for pair in zip(one, other, strict=True) if pair[0] != pair[1]]
    if len(apart) != 1:
        return False
    (name, _, value), (their_name, _, theirs) = (word.rpartition("=") for word in apart[0])
    return name == their_name and number_in(value) >= 0 and number_in(theirs) >= 0


def _agreed(candidates: list[list[int]]) -> list[int] | None:
    one = candidates[0] if candidates else None
    return one if one is not None and all(c == one for c in candidates) else None


def _columns(
    arguments: Sequence[Words], environs: Sequence[dict[str, str]]
) -> Iterator[tuple[str, list[str]]]:
    """(name, its value in each process): variables, and arguments at one place of all lines."""
    if len({len(words) for words in arguments}) == 1:
        for place, column in enumerate(zip(*arguments, strict=True)):
            yield _split(column, arguments[0][place - 1] if place else "")
    common = set(environs[0]).intersection(*environs[1:])
    for name in sorted(name for name in common if _RANK.search(name)):
        yield name, [environ[name] for environ in environs]


def _split(column: tuple[str, ...], before: str) -> tuple[str, list[str]]:
    """``--rank=3`` is a name and its value; a bare value may have its name before it."""
    names = {word.partition("=")[0] for word in column}
    if len(names) == 1 and all("=" in word for word in column):
        return names.pop().lstrip("-"), [word.partition("=")[2] for word in column]
    match = _NAME.fullmatch(before)
    return (match[1] if match else ""), list(column)
