"""The same words of several processes, each of which puts its number in brackets before them.

[5] gave up in the halo: no such neighbour
[0] gave up in the halo: no such neighbour

One such number alone may count anything; several before the same words count who says them.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from ...model.log_facts import UnreadFailure
from ...text.late import late

_NUMBERED = late(r"\s{0,8}\[(\d{1,6})\]:? (?=[A-Za-z_])(.{1,120})")


def numbered(fact: UnreadFailure, lines: Sequence[str]) -> list[UnreadFailure]:
    """The failure as that of the processes whose numbers stand before the words; itself where none do."""
    if max(fact.rank, fact.local, fact.task) >= 0 or fact.pid:
        return [fact]
    said: dict[str, set[int]] = {}
    for line in lines:
        match = _NUMBERED.match(line)
        if match is not None:
            said.setdefault(match[2], set()).add(int(match[1]))
    several = [numbers for numbers in said.values() if len(numbers) > 1]
    if len(several) != 1:
        return [fact]
    return [structs.replace(fact, rank=rank) for rank in sorted(several[0])]
