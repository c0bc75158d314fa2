"""Texts for people: words from jobs and the system, which may be anything, made fit to be shown,
and sizes.

Everything that is printed, drawn or written to be read goes through `visible` (one line) or `tame`
(a whole text).
"""

from __future__ import annotations

import re

from .late import late

_LONE = late("[\ud800-\udfff]")
# Control characters, and those that hide or turn around what stands beside them: soft hyphen,
# fillers, zero-width and bidirectional marks, line separators, variation selectors, tags, private
# use and lone surrogates.
_HIDDEN = late(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202f\u2060-\u206f\u2800\u3164"
    "\ue000-\uf8ff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U000e0000-\U0010ffff]"
)
_STACKED = late(
    r"([\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20f0\ufe20-\ufe2f]{3})[\u0300-\u036f\u0483-\u0489"
    r"\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20f0\ufe20-\ufe2f]+"
)
_NOT_JSON = late(_HIDDEN.pattern.replace("\x00-\x1f", ""))  # line ends between JSON's values stay
_UNSAFE = late(r"[^A-Za-z0-9._-]+")
_COLOUR = late(r"(\x1b\[[0-9;:]{0,32}m)")  # what `rich` writes for colours and weights


def readable(text: str) -> str:
    """`text` with U+FFFD for every byte that is not UTF-8.

    Python reads such bytes of command lines, paths and variables as lone surrogates, which no
    encoder takes.
    """
    return _LONE.sub("\ufffd", text)


def visible(text: str) -> str:
    """`text` with hidden and direction-changing characters written as ``\\u{202e}``; of stacked
    accents three are kept.
    """
    if text.isascii() and text.isprintable():
        return text
    return _STACKED.sub(r"\1\\u{…}", _HIDDEN.sub(lambda m: f"\\u{{{ord(m[0]):x}}}", text))


def tame(text: str) -> str:
    """`text` for a terminal: lines, tabs and colours stay, every other character that could steer
    it becomes visible.
    """
    if text.isascii() and text.isprintable():
        return text
    pieces = _COLOUR.split(text)
    pieces[::2] = [
        "\n".join("\t".join(map(visible, line.split("\t"))) for line in piece.split("\n"))
        for piece in pieces[::2]
    ]
    return "".join(pieces)


def escape_hidden(text: str) -> str:
    r"""JSON text with hidden characters as escapes (``\u202e``): the same data, safe to look at."""
    return text if text.isascii() and "\x7f" not in text else _NOT_JSON.sub(_json_escape, text)


def _json_escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def cut_at_word(text: str, width: int) -> str:
    """`text`, at most `width` characters, the last whole word followed by ``...``."""
    if len(text) <= width:
        return text
    kept = text[: width - 3]
    if text[width - 3] != " ":
        kept = kept.rpartition(" ")[0] or kept
    return f"{kept.rstrip()}..."


def size_words(number: float) -> str:
    """Bytes as a person reads them: ``812 B``, ``1.9 MB``, ``42 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if number >= 10 or unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def safe_name(text: str) -> str:
    """`text` as one path component; names come from jobs and nodes and are not trusted."""
    return _UNSAFE.sub("_", text).strip("._")[:80] or "job"
