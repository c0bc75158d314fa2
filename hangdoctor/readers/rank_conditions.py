"""The condition on its rank under which alone a program runs a line: ``rank == 0 and step % 10 == 0``.

Read by indentation, as the loops are: the program is anyone's. An ``if`` with another branch says
nothing, since the other ranks may make the same call there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..text.late import late
from .retry_loops import blocks_around, indent_of

_OF_RANK = late(r"rank|main_process|is_ma(?:in|ster)|global_zero|process_zero", re.I)
_IF = late(r"if\b\s*\(?(.+?)\)?:\s*(?:#.*)?$")
_LEAVES = late(r"(?:return|continue)\b")
_FAR = 400  # lines that are looked at, each way
_LONGEST = 120  # characters of a condition; a longer one is left out


def condition(lines: Sequence[str], number: int) -> str:
    """The innermost condition on the rank around line `number` (from 1), in its function; "" where
    none is. Of ``if rank != 0: return`` before it: ``not (rank != 0)``.
    """
    if not 0 < number <= len(lines):
        return ""
    inside = number - 1
    for at, keyword in blocks_around(lines, number - 1):
        left = _left_before(lines, at, inside)
        if left:
            return left
        if keyword in ("def", "class"):
            return ""
        if keyword == "if" and _ends_without_else(lines, at):
            asked = _condition_of(lines[at])
            if asked:
                return asked
        inside = at
    return ""


def _left_before(lines: Sequence[str], header: int, line: int) -> str:
    """The condition under which other ranks leave a block before the line, which is in it."""
    indent = indent_of(lines[line])
    for n in range(line - 1, header, -1):
        if indent_of(lines[n]) != indent or n + 1 >= line:
            continue
        asked = _condition_of(lines[n])
        if asked and _LEAVES.match(lines[n + 1].strip()) and indent_of(lines[n + 1]) > indent:
            return _not(asked)
    return ""


def _not(asked: str) -> str:
    """``rank`` of ``not rank``; else ``not (rank != 0)``."""
    bare = asked.removeprefix("not ")
    single = bare != asked and not re.search(r"\b(?:and|or|if)\b|[<>=!]", bare)
    return bare if single else f"not ({asked})"


def _ends_without_else(lines: Sequence[str], header: int) -> bool:
    indent = indent_of(lines[header])
    for line in lines[header + 1 : header + _FAR]:
        text = line.strip()
        if text and not text.startswith("#") and indent_of(line) <= indent:
            return not re.match(r"(?:elif|else)\b", text)
    return True


def _condition_of(line: str) -> str:
    """What an ``if`` asks of the rank; "" of any other line."""
    match = _IF.match(line.strip())
    if match is None or not _OF_RANK.search(match[1]) or len(match[1]) > _LONGEST:
        return ""
    return match[1]
