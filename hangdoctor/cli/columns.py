"""Tables of plain text: columns as wide as what is in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

_WIDEST = 60  # characters of a column: a longer value pushes its own line alone


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A line for each row; the last column is not filled up."""
    *before, _ = zip(*rows, strict=True)
    widths = [min(_WIDEST, max(map(len, column))) for column in before]
    for *fixed, last in rows:
        padded = [f"{cell:<{width}}" for cell, width in zip(fixed, widths, strict=True)]
        yield "  ".join([*padded, last])
