"""Errors that a program logged: a line of its logger stands before the traceback, and whose line it
was is who raised it. What is logged was caught: the program may have gone on.
"""

from __future__ import annotations

import re

from .prefix import Said

_LEVEL = re.compile(r"\b(?:WARN(?:ING)?|ERROR|CRITICAL|FATAL|EXCEPTION)\b|^[EWF]\d{4} ")
_WARNING = re.compile(r"\b(?:WARN(?:ING)?|INFO|DEBUG)\b")
_HEAD = re.compile(r"^[^:]{0,40}?\b(?:WARN(?:ING)?|ERROR|CRITICAL|FATAL|EXCEPTION|INFO|DEBUG)\b")
_BEGIN = "Traceback (most recent call last)"
_CHAINED = (
    "During handling of the above exception",
    "The above exception was the direct cause",
)
_LONG = 200  # characters in which a logger's level stands
Key = tuple[int, int, int, str, int]


def is_warning(text: str) -> bool:
    """Whether a logger wrote the line, below the level of an error."""
    head = _HEAD.match(text[:_LONG])
    return head is not None and _WARNING.search(head[0]) is not None


class Logged:
    """Which of the open tracebacks of one file a logger printed."""

    def __init__(self) -> None:
        self._before: Said | None = None  # the line before, where a logger wrote it
        self._heads: dict[Key, Said] = {}
        self._ended: dict[Key, Said] = {}  # of a traceback that another may follow

    def look(self, said: Said) -> None:
        """Take a line, before the stacks take it."""
        before, self._before = self._before, None
        text, key = said.text, said.speaker()
        if text.startswith(_CHAINED):
            if key in self._ended:
                self._heads[key] = self._ended[key]
        elif _BEGIN in text:
            own = _BEGIN in text and not text.startswith("Traceback")
            head = said if own and _LEVEL.search(text[:_LONG]) else before
            if head is not None and (said.rank < 0 or said.rank == head.rank):
                self._heads[key] = head
        elif _HEAD.match(text[:_LONG]) is not None and _LEVEL.search(text[:_LONG]) is not None:
            self._before = said
        elif text.strip():
            self._ended.pop(key, None)
        else:
            self._before = before  # empty lines between

    def head_of(self, said: Said) -> Said | None:
        """Who logged the traceback that ends with this line; None where none did."""
        key = said.speaker()
        head = self._heads.pop(key, None)
        if head is not None:
            self._ended[key] = head
        return head
