"""Ranks by the stacks that faulthandler printed into the job's log.

They show where a rank was only in a job that did not fail: one that ends its processes has them
print their stacks on the way.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping

from ..model.capture import ProcessSample, RankCapture, ThreadSample
from ..model.log_facts import (
    AnyFact,
    Cancelled,
    Ended,
    JobLogs,
    KnownError,
    NodeLost,
    OomKill,
    PythonError,
    ThreadStack,
)
from .job_logs.introduced import THREAD_STARTS

_FAILED = (Cancelled, Ended, KnownError, NodeLost, OomKill, PythonError)
_AT_LIMIT = (-signal.SIGABRT, -signal.SIGTERM)  # beside an exit, and what the launcher does then
_PROBE = "/hangdoctor/probe/"  # its heartbeat's thread is no thread of Python's own
_SECONDS = 5.0  # between the samples that such a rank would have given
_LEAST = 2  # ranks, before one can stand out


def ranks_of(logs: JobLogs) -> list[RankCapture]:
    """The ranks whose main thread's stack is in the log, each by its last one; none where the job
    failed, but by the limit or guard that had them printed.
    """
    last = logs.attempts - 1
    stacks = {f.rank: f for f in logs.facts if isinstance(f, ThreadStack) and _is_main(f)}
    stacks = {rank: f for rank, f in stacks.items() if rank >= 0 and f.attempt == last}
    failed = [f for f in logs.facts if isinstance(f, _FAILED) and f.attempt == last]
    if len(stacks) < _LEAST or not all(_at_limit(fact, stacks) for fact in failed):
        return []
    world = max(logs.world_size, *(rank + 1 for rank in stacks))
    return [_capture(rank, stack, world, logs) for rank, stack in sorted(stacks.items())]


def _at_limit(fact: AnyFact, stacks: Mapping[int, ThreadStack]) -> bool:
    """Whether it says no more than that processes ended at that limit (`exit=True`), or were ended
    when another one had.
    """
    if not any(stack.guarded for stack in stacks.values()):
        return False
    if isinstance(fact, PythonError | KnownError):
        return fact.role == "launcher"
    return isinstance(fact, Ended) and (fact.code > 0 or fact.code in _AT_LIMIT)


def _is_main(stack: ThreadStack) -> bool:
    if not stack.frames or stack.fatal:
        return False
    outermost = stack.frames[-1]
    return outermost.name not in THREAD_STARTS and _PROBE not in outermost.file


def _capture(rank: int, stack: ThreadStack, world: int, logs: JobLogs) -> RankCapture:
    thread = ThreadSample(tid=1, name="MainThread", frames=list(stack.frames))
    moments: tuple[float, ...] = (0.0,)
    if stack.guarded:  # nothing had got on there for long
        thread.state, thread.switches, moments = "S", 1, (0.0, _SECONDS)
    return RankCapture(
        pid=stack.pid,
        rank=rank,
        node=stack.node or logs.homes.get(rank, ""),
        world_size=world,
        samples=[ProcessSample(at, thread.state, threads=[thread]) for at in moments],
    )
