"""Whether torchrun waits for nodes for too long: no rank is there yet whose progress could stop.

No I/O and no clock, as in `state`.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..text.durations import duration
from .instructions import Node


class RendezvousWatch:
    """Asked every tick; answers once for each time that torchrun waits."""

    def __init__(self, limit_s: float) -> None:
        """`limit_s`: from then on it waits too long."""
        self.limit_s = limit_s
        self._told = False

    def tick(self, nodes: Iterable[Node], living: int) -> str:
        """The reason for a capture, "" where there is none now. `living` ranks run."""
        waits_s = 0.0 if living else max((n.waits_s for n in nodes if not n.left), default=0.0)
        if not waits_s:
            self._told = False
            return ""
        if self._told or waits_s < self.limit_s:
            return ""
        self._told = True
        return (
            f"no rank has been started: torchrun has been waiting for nodes for {duration(waits_s)}"
        )
