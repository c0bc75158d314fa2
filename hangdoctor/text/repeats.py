"""Rows that repeat, said once with a number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
_LONGEST = 12  # rows of one round
_LEAST = 3  # rounds: two are read as fast as a note about them


def folded(rows: Sequence[T], longest: int = _LONGEST) -> Iterator[tuple[Sequence[T], int]]:
    """The rows in blocks of at most `longest`, in their order, each with how many times it comes
    in a row.
    """
    at = 0
    while at < len(rows):
        size, times = _round_at(rows, at, longest)
        yield rows[at : at + size], times
        at += size * times


def _round_at(rows: Sequence[T], at: int, longest: int) -> tuple[int, int]:
    """The size and the number of the rounds that begin there: those that cover most rows."""
    best, most = (1, 1), _LEAST - 1
    for size in range(1, longest + 1):
        times = rounds(rows, at, rows[at : at + size])
        if times >= _LEAST and size * times > most:
            best, most = (size, times), size * times
    return best


def rounds(rows: Sequence[T], at: int, block: Sequence[T]) -> int:
    """How many times the block comes in a row from that place on."""
    times = 0
    while block and rows[at : at + len(block)] == block:
        times += 1
        at += len(block)
    return times
