"""Whose stacks faulthandler prints after a line that names one rank, such as a guard's ``rank 2: no
progress for 20 s, aborting``: faulthandler itself does not say it.

One dump ends with the main thread. Where two lines name ranks before a dump, or one stands inside
of a dump, nothing shows whose it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...model.frame import Frame
from ...text.late import late

_NAMED = late(r"\b(?:global[_ ])?rank(?:[_ ]id)?(?:[ _=:#]|= ?|: )?\[?(\d{1,7})\b", re.I)
_SEVERAL = late(r"\branks\b", re.I)
_LONG = 300  # characters that are looked through
_BETWEEN = 3  # lines between it and the first stack, as "Timeout (0:00:20)!"
THREAD_STARTS = ("_bootstrap", "_bootstrap_inner")  # outermost frames of all but the main thread
_OUTERMOST = ("<module>", "_run_module_as_main", "_run_code")  # of a main thread


class Introduced:
    """The lines that one speaker printed before and between stacks."""

    def __init__(self) -> None:
        self._named: list[int] = []  # ranks, since the last dump
        self._since = 0  # lines after the last of them
        self._owner = -1  # of the dump that is read
        self._open = False  # its main thread has not come

    def line(self, text: str) -> None:
        """Take a line that belongs to no stack."""
        if not text.strip():
            return
        rank = rank_named(text)
        if rank < 0:
            self._since += 1
            if self._since > _BETWEEN:
                self._named = []
            return
        self.named(rank)

    def named(self, rank: int) -> None:
        """Take a line that names this rank."""
        if self._open:
            self._named.append(self._owner)
        self._named.append(rank)
        self._since = 0

    def head(self) -> int:
        """The rank whose stack begins here; -1 unknown."""
        if self._named:
            self._owner = self._named[0] if len(set(self._named)) == 1 else -1
            self._named, self._open = [], True
        return self._owner if self._open else -1

    def over(self) -> None:
        """The dump has ended, wherever its outermost frame is."""
        self._open = False

    def ended(self, frames: Sequence[Frame]) -> None:
        """Take the frames of a stack that has ended, innermost first."""
        if frames and frames[-1].name in _OUTERMOST:
            self._open = False


def rank_named(text: str) -> int:
    """The one rank that a line names; -1 for none, or several."""
    head = text[:_LONG]
    named = {int(number) for number in _NAMED.findall(head)}
    return named.pop() if len(named) == 1 and not _SEVERAL.search(head) else -1
