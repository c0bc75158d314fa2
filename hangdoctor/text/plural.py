"""Singular and plural: of nouns, of verbs, and of ranks by their ranges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .ranges import format_ranks


def choose(things: Sequence[object] | int, one: str, many: str) -> str:
    """`one` or `many`, by the number of things."""
    number = things if isinstance(things, int) else len(things)
    return one if number == 1 else many


def count(number: int, noun: str) -> str:
    """``1 rank``, ``8 ranks``."""
    return f"{number} {noun}{choose(number, '', 's')}"


def ranks(some: Iterable[int]) -> str:
    """``rank 3``, ``ranks 0-2,8``; "" for none."""
    numbers = sorted(set(some))
    return f"{choose(numbers, 'rank', 'ranks')} {format_ranks(numbers)}" if numbers else ""
