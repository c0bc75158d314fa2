"""torchrun's agents of this node that run no rank, for the collector: a job that waits at its
rendezvous has no rank whose progress could stop.
"""

from __future__ import annotations

from hangdoctor.readers import waiting_agents
from hangdoctor.readers.discover import uid_of
from hangdoctor.time_limit import OutOfTime, Patience

_EVERY_S = 10.0
_LIMIT_S = 3.0


class RendezvousSearch:
    """At most one search in ten seconds. `job` and `slurm_job`: as the node agent was given them."""

    def __init__(self, job: str, slurm_job: str) -> None:
        self._job, self._slurm_job = job, slurm_job
        self._patience = Patience(_LIMIT_S)
        self._next = 0.0
        self._since = 0.0  # by the clock of this process; 0: none waits

    def waits_s(self, now: float) -> float:
        """For how long one of the job has been there, 0 where there is none; `now`: monotonic."""
        if now >= self._next:
            self._next = now + _EVERY_S
            try:
                seconds = self._patience.ask("processes", self._find)
            except OutOfTime:
                seconds = 0.0
            self._since = now - seconds if seconds else 0.0
        return now - self._since if self._since else 0.0

    def _find(self) -> float:
        found = waiting_agents.of_job(uid_of(""), self._job, self._slurm_job)
        return max((agent.seconds for agent in found), default=0.0)
