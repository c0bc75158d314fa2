"""A line for each agent that comes or goes, as long as they are few; the rest of a crowd is one
line.
"""

from __future__ import annotations

from .instructions import Log

_EACH = 8  # lines in a row
_CALM_S = 1.0  # without another one: the crowd is complete
_ANEW_S = 10.0  # after this the next one has a line of its own again


class CrowdLines:
    """Lines of one kind; `rest` is what they all did: ``connected``."""

    def __init__(self, rest: str) -> None:
        self._rest = rest
        self._said = self._silent = 0
        self._last = -1e18

    def say(self, text: str, now: float) -> list[Log]:
        """The line of one of them, or nothing where it is counted only."""
        if now - self._last > _ANEW_S:
            self._said = 0
        self._last = now
        if self._said >= _EACH:
            self._silent += 1
            return []
        self._said += 1
        return [Log(text)]

    def tick(self, now: float, nodes: int) -> list[Log]:
        """How many came without a line, once no more of them come."""
        if not self._silent or now - self._last < _CALM_S:
            return []
        count, self._silent = self._silent, 0
        agents = "agent has" if count == 1 else "agents have"
        return [Log(f"{count} more {agents} {self._rest} ({nodes} nodes)")]
