"""How many ranks a job has, by what its watchdogs say of an all-gather that timed out: each gives
`NumelIn` elements, and all get those of every rank.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...model.log_facts import AnyFact, TimedOut

_DEFAULT = "default_pg"
_GATHERS = ("ALLGATHER", "_ALLGATHER_BASE")


def world_size(facts: Iterable[AnyFact]) -> int:
    """0 where no all-gather of the job's own group shows it, or they disagree."""
    waits = [f for f in facts if isinstance(f, TimedOut) and f.op in _GATHERS]
    own = {f.seq for f in waits if _DEFAULT in f.group}
    sizes = {_share(f) for f in waits if f.seq in own and f.group_rank in (-1, f.rank)}
    size = sizes.pop() if len(sizes) == 1 else 0
    return size if size > max((f.rank for f in waits), default=0) else 0


def _share(wait: TimedOut) -> int:
    if wait.numel_in <= 0 or wait.numel_out % wait.numel_in:
        return 0
    return wait.numel_out // wait.numel_in
