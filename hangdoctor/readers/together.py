"""Two captures of one job as one: a bundle, and what was found beside it."""

from __future__ import annotations

from ..model.capture import JobCapture, NodeCapture
from .offline import join_logs


def add(capture: JobCapture, other: JobCapture) -> None:
    """Put into `capture` what `other` has and it lacks: logs, RAS, operations and stacks of ranks."""
    known = {r.rank: r for r in capture.ranks()}
    fresh = NodeCapture("", "files")
    for rank in [] if other.numbered else other.ranks():
        own = known.get(rank.rank)
        if own is None:
            fresh.ranks.append(rank)
            continue
        own.ops = own.ops or rank.ops
        if not any(t.frames for s in own.samples for t in s.threads):
            own.samples = rank.samples or own.samples
    if other.numbered:
        capture.notes.append("stacks of processes without a rank are not joined with the bundle")
    capture.nodes += [fresh] if fresh.ranks else []
    capture.nodes += [NodeCapture("", "ras", ras=n.ras) for n in other.nodes if n.ras is not None]
    if other.logs is not None and capture.logs is not None:
        join_logs(other.logs, capture.logs)
    capture.logs = other.logs or capture.logs
    capture.world_size = max(capture.world_size, other.world_size)
    capture.notes += [note for note in other.notes if note not in capture.notes]
