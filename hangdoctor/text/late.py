"""Regular expressions that are compiled when they are first used.

The readers and the engine have some six hundred. A command uses about a hundred of them, and to
compile them all would be a fifth of its start.
"""

from __future__ import annotations

import re
from typing import AnyStr, cast

_METHODS = ("search", "match", "fullmatch", "finditer", "findall", "sub", "subn", "split")
_FACTS = ("pattern", "flags", "groups", "groupindex")


class Late:
    """Stands for a compiled pattern, which it becomes with the first use of a method."""

    def __init__(self, source: str | bytes, flags: int) -> None:
        self._source = source
        self._flags = flags

    def __getattr__(self, name: str) -> object:
        """Called only for what is not there yet: from the first use on, all of it is."""
        if name.startswith("__"):
            raise AttributeError(name)
        compiled = re.compile(self._source, self._flags)
        self.__dict__.update({each: getattr(compiled, each) for each in (*_METHODS, *_FACTS)})
        return getattr(compiled, name)

    def __repr__(self) -> str:
        return f"late({self._source!r})"


def late(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Like `re.compile`, at the cost of a small object. A mistake in `source` shows with the first use.

    Raises:
        re.error: at the first use, where `source` is no regular expression.
    """
    return cast("re.Pattern[AnyStr]", Late(source, flags))
