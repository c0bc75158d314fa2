"""How many iterations a job makes, from what its ranks report; a few instructions a rank."""

from __future__ import annotations


class StepCounter:
    """Iterations of the job: those of the rank that is furthest."""

    def __init__(self) -> None:
        self.known = False
        self._furthest = -1
        self._of: dict[int, int] = {}  # rank -> its iteration
        self._steps = 0

    def take(self, rank: int, iteration: int) -> None:
        """What a rank reports; -1 is unknown.

        A rank that goes back (a new run, an earlier checkpoint) takes the whole job back; one that
        leaps ahead of the others counts only what it made itself.
        """
        if iteration < 0:
            return
        before = self._of.get(rank, -1)
        if before == iteration:
            return
        self._of[rank] = iteration
        self.known = True
        if before >= 0 and iteration > self._furthest:
            self._steps += min(iteration - self._furthest, iteration - before)
        if iteration < before or iteration > self._furthest:
            self._furthest = iteration

    @property
    def furthest(self) -> int:
        """The iteration of the job, -1 where it is not known."""
        return self._furthest

    def taken(self) -> int:
        """Steps since the call before."""
        steps, self._steps = self._steps, 0
        return steps
