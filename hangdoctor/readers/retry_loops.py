"""Loops around a line of a program: those that try again after an exception, and those that count.

A rank in one of the first runs other lines in each sample and gets nowhere; in one of the others it
comes to an end. Read by indentation, not by parsing:
the program is anyone's, and may be written for another Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..text.late import late

_BLOCK = late(r"(?:async\s+)?(while|for|try|except|else|finally|with|if|elif|def|class)\b")
_CAUGHT = late(r"except\*?\s+\(?([\w.]+(?:\s*,\s*[\w.]+)*)")
_COUNTS = late(r"(?:async\s+)?for\s+\(?(\w+)\b.*\bin\b(?!.*\b(?:count|cycle|repeat|iter)\()")
_FOR = late(r"(?:async\s+)?for\s+(.{1,200}?)\s+in\b")
_NAME = late(r"\b[A-Za-z]\w*")
_COMPREHENDS = late(r"\bfor\b.+\bin\b|\bmap\(")
_FAR = 400  # lines that are looked at, each way
_ASKS = late(r"while\b(?!\s*(?:True|1)\s*:)[^#]{1,400}")


def caught(lines: Sequence[str], number: int) -> str:
    """The exceptions after which the loop around line `number` (from 1) tries again, as the source
    names them: ``ConnectionError``; ``Exception`` of a bare except; "" where there is no such loop.

    That is a handler inside of a loop, with the line in it, or a ``try`` inside of a loop that is
    left where all went well.
    """
    if not 0 < number <= len(lines):
        return ""
    handler = tried = -1
    for at, keyword in blocks_around(lines, number - 1):
        if keyword in ("def", "class"):
            return ""
        if keyword == "except" and handler < 0:
            handler = at
        elif keyword == "try" and handler < 0 and tried < 0:
            tried = at
        elif keyword in ("while", "for") and handler >= 0:
            return _names(lines[handler])
        elif keyword in ("while", "for"):
            return _after(lines, tried) if tried >= 0 and _leaves(lines, tried) else ""
    return ""


def counted(lines: Sequence[str], number: int) -> str:
    """The variable of the innermost loop around line `number` (from 1), where that is a ``for``
    over something that ends; "while" of a ``while``, whose own line asks at each turn, and "" of
    ``itertools.count()``, and where there is no loop.
    """
    if not 0 < number <= len(lines):
        return ""
    if _ASKS.match(lines[number - 1].lstrip()) is not None:
        return "while"
    for at, keyword in blocks_around(lines, number - 1):
        if keyword in ("def", "class"):
            return ""
        if keyword == "while":
            return keyword
        if keyword == "for":
            match = _COUNTS.match(lines[at].lstrip())
            return match[1] if match is not None else ""
    return ""


def begins(lines: Sequence[str], number: int) -> list[int]:
    """The lines (from 1) at which the loops around line `number` of its function begin, outermost
    first.
    """
    if not 0 < number <= len(lines):
        return []
    found: list[int] = []
    for at, keyword in blocks_around(lines, number - 1):
        if keyword in ("def", "class"):
            break
        if keyword in ("while", "for"):
            found.append(at + 1)
    return found[::-1]


def ended(lines: Sequence[str], number: int) -> str:
    """The variables of ``for`` loops that line `number` (from 1) comes after in its function, with blanks
    between them: these say how far a loop came that is over.
    """
    if not 0 < number <= len(lines):
        return ""
    around = list(blocks_around(lines, number - 1))
    first = next((at for at, keyword in around if keyword in ("def", "class")), -1)
    inside = {at for at, keyword in around if keyword == "for"}
    past: set[str] = set()
    own: set[str] = set()
    for at in range(max(first + 1, number - 1 - _FAR), number - 1):
        match = _FOR.match(lines[at].lstrip())
        if match is not None:
            (own if at in inside else past).update(_NAME.findall(match[1]))
    return " ".join(sorted(past - own))


def blocks_around(lines: Sequence[str], at: int) -> Iterator[tuple[int, str]]:
    """The headers of the blocks around a line, innermost first: (place, keyword)."""
    indent = indent_of(lines[at])
    for n in range(at - 1, max(-1, at - _FAR), -1):
        own = indent_of(lines[n])
        if own >= indent or not lines[n].strip() or lines[n].lstrip().startswith("#"):
            continue
        match = _BLOCK.match(lines[n].lstrip())
        if match is not None:
            indent = own
            yield n, match[1]


def is_repeated(lines: Sequence[str], number: int, call: str) -> bool:
    """Whether line `number` (from 1) may run several times in one call of its function: in a loop, or
    with a comprehension or ``map`` in the whole `call`.
    """
    if _COMPREHENDS.search(call):
        return True
    if not 0 < number <= len(lines):
        return False
    for _, keyword in blocks_around(lines, number - 1):
        if keyword in ("def", "class"):
            return False
        if keyword in ("while", "for"):
            return True
    return False


def _leaves(lines: Sequence[str], tried: int) -> bool:
    """Whether the block of a ``try``, or its ``else``, ends with a return or break."""
    last = ""
    block = ""
    inner = -1
    for n in range(tried, min(len(lines), tried + _FAR)):
        text, indent = lines[n].strip(), indent_of(lines[n])
        if not text or text.startswith("#"):
            continue
        if indent < indent_of(lines[tried]):
            break
        if indent == indent_of(lines[tried]):
            if block in ("try", "else") and re.match(r"(?:return|break)\b", last):
                return True
            match = _BLOCK.match(text)
            block, inner, last = (match[1] if match is not None else ""), -1, ""
            if n > tried and block not in ("except", "else", "finally"):
                return False
            continue
        inner = indent if inner < 0 else inner
        last = text if indent == inner else last
    return block in ("try", "else") and re.match(r"(?:return|break)\b", last) is not None


def _after(lines: Sequence[str], tried: int) -> str:
    """What the first handler of a ``try`` catches."""
    for n in range(tried + 1, min(len(lines), tried + _FAR)):
        if lines[n].strip() and indent_of(lines[n]) <= indent_of(lines[tried]):
            is_handler = lines[n].lstrip().startswith("except")
            return _names(lines[n]) if is_handler else ""
    return ""


def _names(header: str) -> str:
    match = _CAUGHT.match(header.strip())
    return re.sub(r"\s*,\s*", ", ", match[1])[:80] if match is not None else "Exception"


def indent_of(line: str) -> int:
    """Columns before a line's text."""
    expanded = line.expandtabs()
    return len(expanded) - len(expanded.lstrip())
