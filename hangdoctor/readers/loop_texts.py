"""What a loop that waits asks for: the texts and paths among its variables, as checksums, enough to see on
which rank one of them is another, and too short for a guess at what they say.

A loop that serves until it is told to stop waits for nothing that all ranks have in common.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence

from ..text import redaction
from ..text.late import late
from .retry_loops import blocks_around, indent_of

_TEXT = late(r"^(?:['\"]|b['\"]|(?:Posix|PurePosix)?Path\()")
_BITS = 1 << 16
_SERVES = late(r"while\s+.*(?:stop|run|alive|shut|exit|quit|termin|close|active)", re.IGNORECASE)
_ALWAYS = late(r"while\s+(?:True|1)\s*:")
_LEAVES = late(r"\s*(?:break|return)\b")
_LONGEST = 60  # lines of such a loop
_MOST = 16  # variables of a function


def checksums(lines: Sequence[str], number: int, shown: Mapping[str, str]) -> dict[str, int]:
    """By name, of the variables of the loop around line `number` (from 1), as py-spy writes them; names of
    secrets are left out.
    """
    loop = _waiting_loop(lines, number)
    words = set(re.findall(r"\w+", "\n".join(loop)))
    texts = {name: text for name, text in shown.items() if _TEXT.match(text)}
    kept = sorted(name for name in texts if name in words and _is_open(name))
    return {name: _checksum(texts[name]) for name in kept[:_MOST]}


def _waiting_loop(lines: Sequence[str], number: int) -> Sequence[str]:
    """The lines of a ``while`` that ends when something has come; () where there is none."""
    if not 0 < number <= len(lines):
        return ()
    for at, keyword in blocks_around(lines, number - 1):
        if keyword in ("def", "class", "for"):
            return ()
        if keyword == "while":
            loop = _block(lines, at)
            header = loop[0].strip()
            ends = not _ALWAYS.match(header) or any(map(_LEAVES.match, loop))
            return loop if ends and not _SERVES.match(header) else ()
    return ()


def _block(lines: Sequence[str], at: int) -> Sequence[str]:
    """A header and what is indented more below it."""
    end = at + 1
    while end < min(len(lines), at + _LONGEST):
        if lines[end].strip() and indent_of(lines[end]) <= indent_of(lines[at]):
            break
        end += 1
    return lines[at:end]


def _checksum(text: str) -> int:
    return zlib.crc32(text.encode(errors="replace")) % _BITS


def _is_open(name: str) -> bool:
    """Whether a value under this name would be shown, too."""
    sample = f"{name}=Zx81q-kd72-Wm0a"
    return redaction.text(sample) == sample
