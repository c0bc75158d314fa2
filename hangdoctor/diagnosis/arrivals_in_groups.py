"""Which rank works while the others wait, by when ranks entered the collectives of their groups.

Where ranks share no collective of all, as under HSDP, who comes last to one of them may have waited in
another until then. So counts only the time of a rank in which it can't have waited: from when all
members had come to the calls that it had made before, until it enters the next.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct

from ..model.operations import Operation

_SHARE = 0.25  # of the time, that it works longer than any other rank
_TIMES = 2.0  # as long as any other
_LONG_S = 3.0  # within less, a loaded machine may have left one rank without a core
_FEWEST = 24  # operations of each rank
_OFTEN = 3  # times: once may be the start, or a checkpoint
_SIMILAR = 0.5  # of its longest turn: such a one is a turn of the same work

Calls = Mapping[int, Sequence[Operation]]  # of each rank, in the order of their entry
Members = Mapping[str, Sequence[int]]  # global ranks of each group


class Worker(Struct):
    """The rank that works most: what it and the others, at the median, waited."""

    rank: int
    waited: float  # shares of the time
    others: float
    until: float  # the last time of an entry


def find(calls: Calls, members: Members) -> Worker | None:
    """The one rank that works far longer between its operations than any other; None without one."""
    if len(calls) < 2 or min(map(len, calls.values())) < _FEWEST:
        return None
    begin = max(ops[0].entered_s for ops in calls.values())
    end = min(ops[-1].entered_s for ops in calls.values())
    if end - begin < _LONG_S:
        return None
    whole = _whole(calls, members)
    turns = {rank: _turns(ops, whole, begin, end) for rank, ops in calls.items()}
    worked = {rank: sum(own) for rank, own in turns.items()}
    first = max(worked, key=lambda rank: worked[rank])
    second = max(seconds for rank, seconds in worked.items() if rank != first)
    if worked[first] < max(_TIMES * second, second + _SHARE * (end - begin)):
        return None
    if sum(own >= _SIMILAR * max(turns[first]) for own in turns[first]) < _OFTEN:
        return None
    waited = {rank: 1 - seconds / (end - begin) for rank, seconds in worked.items()}
    others = sorted(share for rank, share in waited.items() if rank != first)
    return Worker(first, max(0.0, waited[first]), others[len(others) // 2], end)


def _whole(calls: Calls, members: Members) -> dict[tuple[str, int], float]:
    """When the last member came to each collective that all members have entered."""
    came: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)
    for rank, ops in calls.items():
        for op in ops:
            came[op.group, op.seq].setdefault(rank, op.entered_s)
    return {
        key: max(times.values())
        for key, times in came.items()
        if times.keys() == set(members.get(key[0], ()))
    }


def _turns(
    ops: Sequence[Operation], whole: dict[tuple[str, int], float], begin: float, end: float
) -> list[float]:
    """Seconds of own work before each operation between the two times.

    What the rank had handed over and did not wait for, as the last of its members came later than the
    rank's next call, holds nothing up.
    """
    found: list[float] = []
    freed: list[float] = []  # when each of its calls was complete, in order
    before = 0.0
    for op in ops:
        if begin < op.entered_s <= end:
            done = bisect_right(freed, op.entered_s)
            since = max([before, begin, *freed[done - 1 : done]])
            found.append(op.entered_s - since)
        before = op.entered_s
        complete = whole.get((op.group, op.seq))
        if complete is not None:
            insort(freed, complete)
    return found
