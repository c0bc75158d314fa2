"""Errors that a program logged: a line of its logger stands before the traceback, and whose line it
was is who raised it. What is logged was caught: the program may have gone on.
"""

from __future__ import annotations

from collections import Counter

from ...text.late import late
from .introduced import rank_named
from .prefix import Said, Speaker

_LEVEL = late(r"\b(?:WARN(?:ING)?|ERROR|CRITICAL|FATAL|EXCEPTION)\b|^[EWF]\d{4} ")
_WARNING = late(r"\b(?:WARN(?:ING)?|INFO|DEBUG)\b")
_HEAD = late(
    r"^(?:(?!\S{1,60}\.(?:c|cc|cpp|cu|h|hpp):)[\w.]{1,60}:\d{1,6}:? )?[^:]{0,40}?"
    r"\b(?:WARN(?:ING)?|ERROR|CRITICAL|FATAL|EXCEPTION|INFO|DEBUG)\b"
)
_DIGITS = late(r"\d+")
_LIVED_WITH = late(
    r"(?i)\b(?:fail\w*|skip\w*|retry\w*|ignor\w*|continu\w*|fall\w* back|could not|cannot|can't"
    r"|unable|again|without|using)\b"
)
_BEGIN = "Traceback (most recent call last)"
_CHAINED = (
    "During handling of the above exception",
    "The above exception was the direct cause",
)
_LONG = 200  # characters in which a logger's level stands

# Rules of failures that a library prints as information, and gives up; or the kernel
ENDS_AT_INFO = frozenset({"ofi_set_up", "blocked_task"})


def is_warning(said: Said, text: str) -> bool:
    """Whether a logger wrote the line, below the level of an error."""
    if said.level:
        return _WARNING.search(said.level) is not None
    head = _HEAD.match(text[:_LONG])
    return head is not None and _WARNING.search(head[0]) is not None


class Logged:
    """Which of the open tracebacks of one file a logger printed."""

    def __init__(self) -> None:
        self._before: Said | None = None  # the line before, where a logger wrote it
        self._above = ""  # the line before, whoever wrote it, without its numbers
        self._seen: dict[Speaker, str] = {}  # the line above each open traceback
        self._times: Counter[tuple[str, str]] = Counter()  # such lines, with the error below
        self._heads: dict[Speaker, Said] = {}
        self._ended: dict[Speaker, Said] = {}  # of a traceback that another may follow

    def look(self, said: Said) -> None:
        """Take a line, before the stacks take it."""
        before, self._before = self._before, None
        above, self._above = self._above, _DIGITS.sub("#", said.text[:_LONG].strip())
        text, key = said.text, said.speaker()
        if text.startswith(_BEGIN):
            self._seen[key] = above
        if text.startswith(_CHAINED):
            if key in self._ended:
                self._heads[key] = self._ended[key]
        elif _BEGIN in text:
            own = _BEGIN in text and not text.startswith("Traceback")
            head = said if own and _LEVEL.search(text[:_LONG]) else before or _of_level(said)
            uncaught = said.by_torch and head is not None and not head.by_torch
            if head is not None and not uncaught and said.rank in (-1, head.rank):
                self._heads[key] = head
        elif _of_level(said) is not None or _is_head(text[:_LONG]):
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

    def is_repeated(self, said: Said, error: str) -> bool:
        """Whether the line above a traceback that ends with this line stood above another one that
        ended with the same error, its numbers aside: a program that lives with it says so each
        time.
        """
        above = self._seen.pop(said.speaker(), "")
        if _LIVED_WITH.search(above) is None:
            return False
        self._times[above, error] += 1
        return self._times[above, error] > 1

    def rank_of_head(self, said: Said) -> int:
        """The rank of the logger's line before an open traceback of this speaker; -1 for none."""
        head = self.head_of(said)
        return -1 if head is None else named_by(head)


def named_by(head: Said) -> int:
    """The rank of a logger's line: by its prefix, or the only one that it names."""
    return head.rank if head.rank >= 0 else rank_named(head.text)


def _of_level(said: Said) -> Said | None:
    """Who says a line, where its logger's prefix has a level that matters."""
    return said if said.level and _LEVEL.search(said.level) is not None else None


def _is_head(text: str) -> bool:
    """Whether a logger wrote a line of a level that matters."""
    return _HEAD.match(text) is not None and _LEVEL.search(text) is not None
