"""Which rank is to set a key of the store, where the key itself says it: by the word "rank", or as one
of a round of keys in which a number was each of the other ranks in turn.
"""

from __future__ import annotations

import re

from ...model.operations import Operation, RankOps
from ...text.late import late

STORE_WAIT = "store_wait"
_NAMED = late(r"rank[-_/.: ]?(\d{1,6})(?!\d)", re.I)
_NUMBER = late(r"\d+")
_LONGEST = 200  # characters of a key that are looked at


def setter(ops: RankOps, wait: Operation) -> int | None:
    """The other rank that is to set the key of a wait, None where that does not show."""
    key = wait.detail[:_LONGEST]
    if not key or "," in key:
        return None  # several keys
    found = named_in(key)
    found = _of_a_round(ops, wait, key) if found is None else found
    if found is None or found == ops.rank or not 0 <= found < ops.world_size:
        return None
    return found


def named_in(key: str) -> int | None:
    """The rank that a key says itself: ``rank3/ready``."""
    named = {int(n) for n in _NAMED.findall(key)}
    return named.pop() if len(named) == 1 else None


def _of_a_round(ops: RankOps, wait: Operation, key: str) -> int | None:
    """``done/5/3``: on this line the last number was every other rank's in each round before, and another
    number counts the rounds. Numbers of one round alone may be anything that is counted.
    """
    form = _NUMBER.sub("#", key)
    pending = _numbers(key)
    earlier = [
        _numbers(o.detail)
        for o in ops.operations
        if o.op == STORE_WAIT
        and o is not wait
        and o.site == wait.site
        and _NUMBER.sub("#", o.detail) == form
    ]
    others = set(range(ops.world_size)) - {ops.rank}
    found = [
        pending[place]
        for place in range(len(pending))
        if len(pending) > 1 and _are_ranks(earlier, pending, place, others)
    ]
    return found[0] if len(found) == 1 else None


def _are_ranks(
    earlier: list[tuple[int, ...]], pending: tuple[int, ...], place: int, others: set[int]
) -> bool:
    """Whether the numbers in this place were all other ranks in a round, and in no round anything else."""
    rounds: dict[tuple[int, ...], set[int]] = {}
    for numbers in earlier:
        rest = numbers[:place] + numbers[place + 1 :]
        rounds.setdefault(rest, set()).add(numbers[place])
    own = pending[:place] + pending[place + 1 :]
    whole = [rest for rest, seen in rounds.items() if seen == others]
    only_ranks = all(seen <= others for seen in rounds.values())
    return only_ranks and pending[place] in others and any(rest != own for rest in whole)


def _numbers(key: str) -> tuple[int, ...]:
    return tuple(int(n) for n in _NUMBER.findall(key)[:8])
