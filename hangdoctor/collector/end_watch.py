"""Whether the job has ended: no rank runs any more; and without finishing: some have failed or were killed.

No I/O and no clock, as in `state`.
"""

from __future__ import annotations

from ..text.durations import duration

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


class EndLine:
    """The line that says that the job has ended and what is waited for: once for each end."""

    def __init__(self, linger_s: float) -> None:
        """`linger_s`: the agents stay for this long after the last rank; 0 if unknown."""
        self.linger_s = linger_s
        self._since: float | None = None
        self._told = False

    def tick(self, now: float, ranks: int, living: int, lost: int) -> list[str]:
        """Asked every tick: `ranks` are known, `living` run, `lost` have not ended cleanly."""
        if living or not ranks:
            again = self._told and living
            self._since, self._told = None, False
            return ["ranks of the job have started again"] if again else []
        self._since = now if self._since is None else self._since
        if self._told or now - self._since < _SETTLE_S:
            return []
        self._told = True
        return [f"the job has ended: {_ends(ranks, lost)}; {self._waits_for()}"]

    def _waits_for(self) -> str:
        if not self.linger_s:
            return "waiting until its agents leave"
        return f"waiting {duration(self.linger_s)} for ranks that start again (Ctrl-C ends now)"


def _ends(ranks: int, lost: int) -> str:
    who = f"all {ranks} ranks have" if ranks > 1 else "its only rank has"
    if not lost:
        return f"{who} finished"
    return f"{who} ended, {lost} without finishing" if ranks > 1 else f"{who} not finished"
