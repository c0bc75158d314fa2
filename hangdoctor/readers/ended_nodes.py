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
    ranks = [rank for capture in captures for rank in capture.ranks]
    if not told or not all(rank.gone for rank in ranks):
        return None
    logs = JobLogs(world_size=max(t.world_size for t in told))
    for one in told:
        _append(logs, one)
    logs.facts.sort(key=lambda f: f.at)
    logs.of_boxes = list(range(len(logs.files)))
    _keep_earliest(logs)
    return logs


def _keep_earliest(logs: JobLogs) -> None:
    """Of the ends that were first on their node, the earliest is the first of the job."""
    first = [f for f in logs.facts if isinstance(f, Ended) and f.first]
    for later in first[1:]:
        later.first = False


def _append(logs: JobLogs, more: JobLogs) -> None:
    """A fact names its file by number: those of `more` come behind the files that are there."""
    for fact in more.facts:
        fact.file += len(logs.files)
    logs.files += more.files
    logs.facts += more.facts
    logs.homes |= more.homes
    logs.rules |= more.rules
