"""Texts for people: words from the system, where they may be any bytes, and sizes."""

from __future__ import annotations

import re

_LONE = re.compile("[\ud800-\udfff]")


def readable(text: str) -> str:
    """`text` with U+FFFD for every byte that is no UTF-8.

    Python reads such bytes of command lines, paths and variables as lone surrogates, which no encoder takes.
    """
    return _LONE.sub("\ufffd", text)


def size_words(number: float) -> str:
    """Bytes as a person reads them: ``812 B``, ``1.9 MB``, ``42 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if number >= 10 or unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"
