"""Ranks by the stacks that faulthandler printed into the job's log.

They show where a rank was only in a job that did not fail: one that ends its processes has them
print their stacks on the way.
"""

from __future__ import annotations

from ..model.capture import ProcessSample, RankCapture, ThreadSample
from ..model.log_facts import (
    Cancelled,
    Ended,
    JobLogs,
    KnownError,
    NodeLost,
    OomKill,
    PythonError,
    ThreadStack,
)

_FAILED = (Cancelled, Ended, KnownError, NodeLost, OomKill, PythonError)
_OF_THREADS = ("_bootstrap", "_bootstrap_inner")  # outermost frames of all but the main thread
_PROBE = "/hangdoctor/probe/"  # its heartbeat's thread is no thread of Python's own
_LEAST = 2  # ranks, before one can stand out


def ranks_of(logs: JobLogs) -> list[RankCapture]:
    """The ranks whose main thread's stack is in the log, each by its last one; none where the job
    failed.
    """
    last = logs.attempts - 1
    if any(isinstance(fact, _FAILED) and fact.attempt == last for fact in logs.facts):
        return []
    stacks = {f.rank: f for f in logs.facts if isinstance(f, ThreadStack) and _is_main(f)}
    stacks = {rank: f for rank, f in stacks.items() if rank >= 0 and f.attempt == last}
    if len(stacks) < _LEAST:
        return []
    world = max(logs.world_size, *(rank + 1 for rank in stacks))
    return [_capture(rank, stack, world, logs) for rank, stack in sorted(stacks.items())]


def _is_main(stack: ThreadStack) -> bool:
    if not stack.frames or stack.fatal:
        return False
    outermost = stack.frames[-1]
    return outermost.name not in _OF_THREADS and _PROBE not in outermost.file


def _capture(rank: int, stack: ThreadStack, world: int, logs: JobLogs) -> RankCapture:
    thread = ThreadSample(tid=1, name="MainThread", frames=list(stack.frames))
    return RankCapture(
        pid=stack.pid,
        rank=rank,
        node=stack.node or logs.homes.get(rank, ""),
        world_size=world,
        samples=[ProcessSample(0.0, threads=[thread])],
    )
