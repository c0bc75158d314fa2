"""The script that a command line of Python names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})  # Python's options of two words


def script_in(argv: Sequence[str]) -> str:
    """The basename of the script, or the module of ``-m``, on Python's command line; "" for code
    on the command line, which is also how multiprocessing starts its processes.
    """
    words = iter(argv[1:])
    for word in words:
        if word == "-m":
            return next(words, "")
        if word in _WITH_VALUE:
            next(words, "")
        elif word == "-c" or word == "-":
            return ""
        elif not word.startswith("-"):
            return Path(word).name
    return ""
