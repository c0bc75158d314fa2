"""Which ranks a verdict found waiting in an operation that no black box records, as one text of the
incidents' index: a line for each operation, ``0-2,5 gradient all_reduce in backward``.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import UsageError
from ..model.diagnosis import RankLine
from ..text.ranges import format_ranks, parse_ranks

_MOST = 400  # characters: every page gets it, and of ranks without any order none reads them


def as_text(ranks: Iterable[RankLine]) -> str:
    """The waits of these ranks; "" where there are none, or too many to be said in short."""
    waiting: dict[str, list[int]] = {}
    for one in ranks:
        if one.unrecorded:
            waiting.setdefault(one.unrecorded, []).append(one.rank)
    lines = [f"{format_ranks(those)} {op}" for op, those in sorted(waiting.items())]
    text = "\n".join(lines)
    return text if len(text) <= _MOST else ""


def from_text(text: str) -> dict[int, str]:
    """Rank -> operation; empty for a text that `as_text` does not write."""
    found: dict[int, str] = {}
    for line in text[:_MOST].splitlines():
        ranks, _, op = line.partition(" ")
        try:
            found |= dict.fromkeys(parse_ranks(ranks), op)
        except UsageError:
            return {}
    return found
