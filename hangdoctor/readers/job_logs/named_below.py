"""Host and process of an end, where its runtime prints them in the lines below it, as keys and values.

MPT ERROR: Rank 117(g:117) received signal SIGBUS(7).
        Process ID: 811, Host: n23, Program: /scratch/wave
"""

from __future__ import annotations

from ...model.log_facts import AnyFact, Ended, KnownError
from ...text.late import late
from .prefix import Said

_LINES = 4  # below it
# In a short log the line may still have the launcher's number before it
_KEYS = late(r"^(?:\d{1,7}:)?\s{0,24}[A-Z][\w ]{1,24}\s?[:=]\s?\S")
_HOST = late(
    r"(?:^\s{0,24}|[,;]\s{1,4})(?:[Ll]ocal )?(?:[Hh]ost(?: ?[Nn]ame)?|[Nn]ode(?: ?[Nn]ame)?)\s{0,8}[:=]\s{0,12}(?P<node>[A-Za-z][\w.-]{0,120})(?=[,;\s]|$)"
)
_PID = late(r"(?:^\s{0,24}|[,;]\s{1,4})(?:PID|[Pp]id|[Pp]rocess ID)\s{0,8}[:=]\s{0,12}(\d{1,9})\b")
# The same, where a stack has these lines as one text
_BESIDE = late(r"Process ID: (\d{1,9}), Host: ([A-Za-z][\w.-]{0,120}),")


class NamedBelow:
    """Takes the lines of one file one after the other."""

    def __init__(self) -> None:
        self._fact: Ended | KnownError | None = None
        self._speaker = Said().speaker()
        self._left = 0

    def begin(self, fact: AnyFact, said: Said) -> bool:
        """What was found in a line; whether its host may stand below."""
        if not isinstance(fact, Ended | KnownError) or self._left > 0:
            return False
        if fact.rank < 0 or fact.node:
            return False
        beside = _BESIDE.search(said.text)
        if beside is not None:
            fact.pid, fact.node = fact.pid or int(beside[1]), beside[2]
            return False
        self._fact, self._speaker, self._left = fact, said.speaker(), _LINES
        return True

    def feed(self, said: Said) -> None:
        """The next line."""
        if self._left <= 0 or said.speaker() != self._speaker or self._fact is None:
            return
        self._left -= 1
        if _KEYS.match(said.text) is None:
            return
        host, pid = _HOST.search(said.text), _PID.search(said.text)
        if host is not None and not self._fact.node:
            self._fact.node, self._left = host["node"], 0
        if pid is not None and not self._fact.pid:
            self._fact.pid = int(pid[1])
