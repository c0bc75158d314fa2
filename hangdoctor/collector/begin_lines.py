"""What an operator reads once at the beginning: the watch has begun, or no node has a rank of the job.

No I/O and no clock, as in `state`.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..text.plural import choose
from ..watch.stall_evidence import Hearing
from ..watch.stall_watch import StallWatch
from .instructions import Instruction, Log, Node

_EMPTY_S = 10.0  # agents without a rank for this long are worth a line
_GATHER_S = 10.0  # for ranks that are missing, before it is said how many are watched


class BeginLines:
    """Asked every tick. `nodes` is the core's own table."""

    def __init__(self, nodes: Mapping[str, Node], watchdog: StallWatch) -> None:
        self.nodes, self.watchdog = nodes, watchdog
        self.watching = False  # it was said that the ranks are watched
        self._warm_since: float | None = None
        self._empty_since: float | None = None  # agents are here, and none has a rank
        self._ranks_came = False  # or it was said that there are none

    def again(self) -> None:
        """Another run of the job has begun."""
        self.watching, self._warm_since = False, None

    def tick(self, now: float, hears: Hearing) -> list[Instruction]:
        """The lines that are due now."""
        return [*self._greet(now, hears), *self._empty(now)]

    def _greet(self, now: float, hears: Hearing) -> list[Instruction]:
        if self.watching or not self.watchdog.learned.warm:
            return []
        self._warm_since = now if self._warm_since is None else self._warm_since
        whole = hears.complete and self.watchdog.ranks
        if not whole and now - self._warm_since < _GATHER_S:
            return []
        self.watching, number = True, self.watchdog.ranks
        return [
            Log(
                f"the job's rhythm is known; {number} {choose(number, 'rank is', 'ranks are')} watched"
            )
        ]

    def _empty(self, now: float) -> list[Instruction]:
        """The job has not begun, or another one was meant."""
        if not self.nodes or self._ranks_came:
            return []
        if any(n.job for n in self.nodes.values()):
            self._ranks_came = True
            return []
        self._empty_since = now if self._empty_since is None else self._empty_since
        if now - self._empty_since < _EMPTY_S:
            return []
        self._ranks_came = True
        count = len(self.nodes)
        where = "1 node has connected and has"
        if count > 1:
            where = f"{count} nodes have connected and have"
        how = "the agents' logs list the jobs on their nodes"
        return [Log(f"waiting for ranks: {where} no rank of the job yet; {how}")]
