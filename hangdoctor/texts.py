"""Words from the system, where they may be any bytes, as text that can be printed and sent."""

from __future__ import annotations

import re

_LONE = re.compile("[\ud800-\udfff]")


def readable(text: str) -> str:
    """`text` with U+FFFD for every byte that is no UTF-8.

    Python reads such bytes of command lines, paths and variables as lone surrogates, which no encoder takes.
    """
    return _LONE.sub("\ufffd", text)
