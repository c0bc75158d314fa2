"""How long a job's operations usually last, and which waits are longer than that explains."""

from __future__ import annotations

from collections.abc import Iterable

from .log_facts import AnyFact, Ended, GlooTimeout, PythonError
from .operations import RankOps

_SHORTEST_S = 2.0  # a wait that says something
_LONGER = 3.0  # than any operation of the job before


def first_end(facts: Iterable[AnyFact]) -> float:
    """When the first rank ended or a wait reached its limit, in seconds since the epoch; 0 where no
    fact says it.
    """
    kinds = Ended | PythonError | GlooTimeout
    return min((f.at for f in facts if isinstance(f, kinds) and f.at > 0), default=0.0)


def usual_pause(every: Iterable[RankOps], until: float) -> float:
    """Seconds of the longest operation that ended before `until` (0: ever); set-up apart, and what
    was in the air beside others.
    """
    longest = 0.0
    for ops in every:
        for operation in ops.operations:
            ended = operation.state == "done" and not operation.failed
            if not ended or operation.asynchronous or operation.op == "init_process_group":
                continue
            if not until or operation.left_s <= until:
                longest = max(longest, operation.left_s - operation.entered_s)
    return longest


def is_long(seconds: float, usual: float) -> bool:
    """Whether a wait is longer than the job's usual ones explain."""
    return seconds > max(_SHORTEST_S, _LONGER * usual)
