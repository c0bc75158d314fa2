"""The job after its end: what all nodes say of how their ranks ended, as one account."""

from __future__ import annotations

from collections.abc import Iterable

from ..model.capture import NodeCapture
from ..model.log_facts import Ended, JobLogs


def joined(nodes: Iterable[NodeCapture]) -> JobLogs | None:
    """The facts of all nodes in the order of time; None where a rank still runs, or no node has any.

    Each node knows which of its ranks ended first; of the job it is the earliest of those.
    """
    captures = list(nodes)
    told = [c.ended for c in captures if c.ended is not None]
    if not told or any(not r.gone for c in captures for r in c.ranks):
        return None
    logs = JobLogs(world_size=max(t.world_size for t in told))
    for one in told:
        for fact in one.facts:
            fact.file += len(logs.files)
        logs.files += one.files
        logs.facts += one.facts
        logs.homes |= one.homes
        logs.rules |= one.rules
    logs.facts.sort(key=lambda f: f.at)
    first = [f for f in logs.facts if isinstance(f, Ended) and f.first]
    for later in first[1:]:
        later.first = False
    return logs
