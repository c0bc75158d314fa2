"""Whether the job has ended without finishing: no rank runs any more, and some have failed or were killed.

No I/O and no clock, as in `state`.
"""

from __future__ import annotations

_SETTLE_S = 2.0  # reports of other nodes, and what parents note of their processes, come meanwhile


class EndWatch:
    """Asked every tick; answers once for each end, and again when ranks have run since."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._told = False

    def tick(self, now: float, living: int, lost: int) -> bool:
        """Whether an end is to be captured now. `living` ranks run, `lost` have not ended cleanly."""
        if living or not lost:
            self._since = None
            self._told = self._told and not living
            return False
        self._since = now if self._since is None else self._since
        if self._told or now - self._since < _SETTLE_S:
            return False
        self._told = True
        return True
