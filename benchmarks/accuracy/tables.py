"""Markdown tables and the shares in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from .score import Said

_BANDS = (
    (0.9, 1.01),
    (0.8, 0.9),
    (0.7, 0.8),
    (0.55, 0.7),
    (0.45, 0.55),
    (0.0, 0.45),
)  # from, below


def percent(share: float) -> str:
    """``97.3 %`` of a share of 1."""
    return f"{100 * share:.1f} %"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Lines of a Markdown table."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "|".join(" --- " if i == 0 else " ---: " for i in range(len(head))) + "|"
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def reliability(said: Sequence[Said]) -> Iterator[str]:
    """Stated confidence against how often it is right, by bands of it."""
    yield from table(["confidence", "causes", "says, mean", "right"], _by_band(said))


def _by_band(said: Sequence[Said]) -> Iterator[list[str]]:
    """Rows: a band of stated confidence, causes, its mean, and the share that is right."""
    for low, high in _BANDS:
        some = [s for s in said if low <= s.confidence < high]
        if some:
            yield worth(f"{low:.0%} and more", some)


def worth(name: str, said: Sequence[Said]) -> list[str]:
    """A row: a name, causes, their mean confidence, and the share that is right."""
    mean = sum(s.confidence for s in said) / len(said)
    right = sum(s.right for s in said) / len(said)
    return [name, str(len(said)), percent(mean), percent(right)]
